"""The soak, short: results are compared, what is wrong is found, growth is told from standing still."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.bench.feeding import PAIR, POSTED, STREAMS, LiveRows
from tests.bench.peers.workloads import Query
from tests.bench.soak.__main__ import report
from tests.bench.soak.expected import compare
from tests.bench.soak.queries import STANDING, Phase
from tests.bench.soak.soak import FOLLOWED, Soaked, soak
from tests.bench.soak.verdict import grew, stretches

START_US = 1_700_000_000_000_000
ROWS = LiveRows(START_US, 100, 20_000, disorder_us=300_000)
ENDS = (0, 700, 1500, 2100, 3000)
VERSIONS = (1, 1, 2, 3, 4)
WIDE, NARROW = Query("wide", 40_000_000, None, 0.9), Query("narrow", 20_000_000, 0.8, 0.8)
PHASES = {name: (Phase(query, "state", 1),) for name, query in STANDING.items()} | {
    "fresh": (Phase(WIDE, "none", 2),),
    "changed": (Phase(WIDE, "none", 2, 3), Phase(NARROW, "state", 3, 4)),
    "gone": (Phase(NARROW, "state", 2, 4),),
}


def pairs(found: Iterable[tuple[int, int]], read_us: int = START_US) -> np.ndarray:
    return np.array([(a, b, read_us) for a, b in found], PAIR)


def nested_loops(phases: Sequence[Phase]) -> list[tuple[int, int]]:
    """Return the pairs of a query, found without a join."""
    a, b = (list(zip(*(c.tolist() for c in ROWS.of(s, 0, ENDS[-1]).values()), strict=True)) for s in STREAMS)
    by_key: dict[int, list[tuple[int, int, float]]] = {}
    for ts, number, k, v in b:
        by_key.setdefault(k, []).append((ts, number, v))
    found = []
    for a_ts, a_number, k, a_v in a:
        for b_ts, b_number, b_v in by_key.get(k, ()):
            batches = np.sort(np.searchsorted(ENDS, (a_number, b_number), side="right"))
            for phase in phases:
                query, since = phase.query, VERSIONS.index(phase.from_version)
                until = len(VERSIONS) if phase.to_version is None else VERSIONS.index(phase.to_version)
                entitled = since <= batches[1] < until and (phase.backfill == "state" or batches[0] >= since)
                passes = a_v < (query.a_below or 1) and b_v < (query.b_below or 1)
                if abs(a_ts - b_ts) < query.window_us and passes and entitled:
                    found.append((a_number, b_number))
    return found


@pytest.fixture(scope="module")
def right() -> Soaked:
    slow_us = START_US + 10_000_000
    requests = [(0, 1000, START_US, START_US + 40_000), (1000, 3000, slow_us, slow_us + 20_000_000)]
    batches = pd.DataFrame({"plan_version": VERSIONS, "at_s": START_US / 1e6 + np.arange(5.0)})
    batches[["end A", "end B"]] = np.array([ENDS, ENDS]).T
    batches[["late_rows", "results", "state_rows", "state_bytes", "segments"]] = 1.0
    samples = pd.DataFrame({"at_s": START_US / 1e6 + np.arange(30.0), "results files": 8.0, "load": 1.0})
    return Soaked(
        rows=ROWS,
        posted={name: np.array(requests, POSTED) for name in STREAMS},
        phases=PHASES,
        pairs={name: pairs(nested_loops(phases)) for name, phases in PHASES.items()},
        samples=samples,
        batches=batches,
    )


def test_rows_do_not_depend_on_how_they_are_cut_and_a_request_has_them_to_the_last_bit() -> None:
    whole = ROWS.of("B", 2**30, 2**30 + 50)
    parts = [ROWS.of("B", first, first + 10) for first in range(2**30, 2**30 + 50, 10)]
    body = json.loads(ROWS.body("B", 2**30, 2**30 + 50))
    for name, column in whole.items():
        assert np.array_equal(column, np.concatenate([part[name] for part in parts]))
        assert column.tolist() == [row[name] for row in body]
    assert not np.array_equal(whole["k"], ROWS.of("A", 2**30, 2**30 + 50)["k"])
    behind_us = np.maximum.accumulate(whole["ts"]) - whole["ts"]
    assert 0 < behind_us.max() <= ROWS.disorder_us


def test_expected_pairs_are_those_of_nested_loops(right: Soaked) -> None:
    found = compare(right)
    assert found["expected"].to_dict() == {name: len(own) for name, own in right.pairs.items()}
    assert not found[["missing", "extra", "doubled"]].any(axis=None)
    assert (found.loc[["fresh", "changed", "gone"], "expected"] > 20).all()


def test_missing_foreign_and_doubled_pairs_are_found(right: Soaked) -> None:
    earlier = sorted(set(nested_loops([Phase(WIDE, "state", 2)])) - set(nested_loops(PHASES["fresh"])))
    read = np.concatenate([right.pairs["fresh"][1:], right.pairs["fresh"][5:7], pairs(earlier[:1])])
    wrong = replace(right, pairs={**right.pairs, "fresh": read})
    assert compare(wrong).loc["fresh"].tolist() == [len(right.pairs["fresh"]), 1, 1, 2]
    _, tables, fails = report(wrong, 2)
    assert fails
    assert "| fresh |" in tables["wrong"]
    cut = replace(right, batches=right.batches[:-1])
    with pytest.raises(RuntimeError, match="the batches end at row 2,100 of A, not 3,000"):
        compare(cut)


@pytest.mark.parametrize(
    ("name", "first", "last", "grown"),
    [
        ("all handles", 100, 104, False),
        ("all handles", 100, 108, True),
        ("all private_bytes", 1e9, 1.04e9, False),
        ("all private_bytes", 1e9, 1.06e9, True),
        ("latency p99_s", 0.100, 0.106, True),
        ("of each batch: results files", 2, 2.05, False),
        ("load", 1, 9, False),
    ],
)
def test_more_than_a_twentieth_is_growth(name: str, first: float, last: float, grown: bool) -> None:
    assert grew(name, first, last) is grown


def test_latency_is_from_the_request_of_the_later_row(right: Soaked) -> None:
    read = {name: pairs([(3, 9), (1999, 10)], START_US + 12_000_000) for name in FOLLOWED}
    found = stretches(replace(right, pairs=read), 15.0)
    assert found.loc["latency p50_s", 0] == pytest.approx((12 + 2) / 2)
    assert found.loc["request p99_s", 0] == pytest.approx(20, rel=0.02)
    assert tuple(found.loc["results files"]) == (8, 8)
    assert tuple(found.loc["of each batch: results files"]) == pytest.approx((8 / 5, 8 / 5), rel=0.2)


@pytest.mark.slow
@pytest.mark.spark
def test_a_short_soak_gives_the_right_results(tmp_path: Path) -> None:
    soaked = soak(15.0, 1_000, tmp_path / "soak", change_every_s=1.0)
    document, tables, fails = report(soaked, 2)
    assert not fails, tables
    assert document["facts"]["late rows"] == 0
    assert document["facts"]["queries that came"] >= 3
    assert document["facts"]["results expected by DuckDB"] > 1_000
    for group in ("service", "JVM", "source", "workers", "all"):
        assert soaked.samples[f"{group} private_bytes"].max() > 0
