"""The counts that every engine must reach, taken from DuckDB once and kept beside the files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench.peers.batch_join import count_results
from tests.bench.peers.workloads import Query, Streams

_KEPT = "expected.json"


def expected_counts(directory: Path, streams: Streams, queries: Sequence[Query]) -> dict[str, int]:
    """Return the number of results of every query by name."""
    path = directory / _KEPT
    known: dict[str, int] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    missing = [q for q in queries if _identity(q) not in known]
    if missing:
        found = count_results(directory, missing, streams)
        known |= {_identity(q): found[q.name] for q in missing}
        path.write_text(json.dumps(known), encoding="utf-8")
    return {q.name: known[_identity(q)] for q in queries}


def differences(found: Mapping[str, int], wanted: Mapping[str, int]) -> str:
    """Return in words where counts differ, or nothing."""
    wrong = [
        f"{name}: {found.get(name, 0):,} instead of {count:,}"
        for name, count in wanted.items()
        if found.get(name, 0) != count
    ]
    shown = "; ".join(wrong[:3])
    return shown if len(wrong) <= 3 else f"{shown}; and {len(wrong) - 3} more"


def _identity(query: Query) -> str:
    return f"{query.window_us} {query.a_below} {query.b_below}"
