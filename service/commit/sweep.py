"""The sweep at a start: files of attempts that never were committed, and of results that were dropped, go.

    batch       0 ......... kept_from ............. swept - REPLAYED_BATCHES ....... last | not committed
    files       all go      known from the last sweep              those that no manifest names go

What a sweep has looked at needs no second look, unless its batch may have been replayed since. So a start
costs the same however many results are kept; reading the manifests of all would take 0.4 ms of CPU each.
"""

from __future__ import annotations

import re
from pathlib import Path

from catalog.store.pruning import REPLAYED_BATCHES
from catalog.store.store import Store

#: Last batch that was committed at the last sweep.
_SWEPT_SETTING = "swept"

_NAME = re.compile(r"b(?P<batch>\d+)-.*-e(?P<epoch>\d+)-[^-]*\.parquet")


def sweep(store: Store, results_dir: Path, late_dir: Path) -> int:
    """Remove files that no manifest names, while nothing writes any; return how many.

    Files of a later epoch than the catalog's stay: another engine has taken over and writes them, or the
    catalog is older than they are.

    Args:
        store: The catalog.
        results_dir: Directory of result files.
        late_dir: Directory of late rows.
    """
    last = store.batches.last_manifest()
    kept_from, _ = store.retention.kept_from()
    swept = store.settings.get(_SWEPT_SETTING)
    looked_at = range(kept_from, swept - REPLAYED_BATCHES + 1 if isinstance(swept, int) else kept_from)
    named: dict[int, set[str]] = {}
    epoch = store.epochs.current()
    removed = 0
    for directory in (results_dir, late_dir):
        for path in directory.glob("b[0-9]*-*.parquet"):
            name = _NAME.fullmatch(path.name)
            if name is None or int(name["epoch"]) > epoch or (batch := int(name["batch"])) in looked_at:
                continue
            if batch not in named:
                named[batch] = _named(store, batch) if batch >= kept_from else set()
            if path.name not in named[batch]:
                path.unlink(missing_ok=True)
                removed += 1
    if last is not None:
        store.settings.set(_SWEPT_SETTING, last.batch)
    return removed


def _named(store: Store, batch: int) -> set[str]:
    manifest = store.batches.manifest(batch)
    files = () if manifest is None else (*manifest.files, *manifest.late_files)
    return {file.path for file in files}
