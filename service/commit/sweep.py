"""Sweep at a start of the engine: removal of files of uncommitted attempts and of dropped results.

    batch       0 ......... first ................. swept - REPLAYED_BATCHES ....... last | not committed
    files       removed (1) checked by the last sweep              removed unless a manifest names them

    (1) except the files that the table of merged files names

``first`` is the first batch whose manifest still names its files: the results of earlier batches were
dropped, or their files are in the table of merged files. A sweep skips the files that the last sweep checked,
unless their batch may have been replayed since. The cost of a start therefore does not depend on the number
of results kept. Reading all manifests would take 0.4 ms of CPU per manifest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from catalog.store.pruning import REPLAYED_BATCHES
from catalog.store.store import Store
from operators.storage.folder import Folder, names, remove

#: Name of the catalog's setting with the newest batch that was committed at the time of the last sweep.
_SWEPT_SETTING = "swept"

_NAME = re.compile(r"[bm](?P<batch>\d+)-.*-e(?P<epoch>\d+)-[^-]*\.parquet")


def sweep(store: Store, results_dir: Folder, late_dir: Folder, epoch: int) -> int:
    """Remove files that neither a manifest nor the table of merged files names; return their number.

    No batch may run meanwhile. Files with a later epoch are kept: either another engine has taken over and
    writes them, or the catalog is older than the files.

    Args:
        store: The catalog.
        results_dir: Folder of result files.
        late_dir: Folder of late rows.
        epoch: Epoch of the engine that sweeps.
    """
    last = store.batches.last_manifest()
    first = max(store.retention.kept_from()[0], store.result_files.merged_until())
    swept = store.settings.get(_SWEPT_SETTING)
    looked_at = range(first, swept - REPLAYED_BATCHES + 1 if isinstance(swept, int) else first)
    named: dict[int, set[str]] = {}
    removed = 0
    for folder in (results_dir, late_dir):
        unnamed = []
        for name, batch in _files("b", folder, epoch):
            if batch in looked_at:
                continue
            if batch not in named:
                named[batch] = _named(store, batch) if batch >= first else set()
            if name not in named[batch]:
                unnamed.append(name)
        removed += _remove(store, folder, unnamed)
    if last is not None:
        store.settings.set(_SWEPT_SETTING, last.batch)
    return removed


def sweep_merged(store: Store, results_dir: Folder, late_dir: Folder, epoch: int) -> int:
    """Remove merged files that the table of merged files does not name, and return their number.

    No merge may run meanwhile.

    Files with a later epoch are kept, as in `sweep`.
    """
    return sum(
        _remove(store, folder, [name for name, _ in _files("m", folder, epoch)])
        for folder in (results_dir, late_dir)
    )


def _files(kind: str, folder: Folder, epoch: int) -> Iterator[tuple[str, int]]:
    """Yield the name and first batch of each file of a kind, which is ``b`` or ``m``; skip later epochs."""
    for name in names(folder):
        parts = _NAME.fullmatch(name) if name.startswith(kind) else None
        if parts is not None and int(parts["epoch"]) <= epoch:
            yield name, int(parts["batch"])


def _remove(store: Store, folder: Folder, unnamed: list[str]) -> int:
    """Remove those of the files that the table of merged files does not name; return their number."""
    # The table is read after the manifests: files may move from manifests to the table, but never back.
    merged = {each.file.path for each in store.result_files.merged()} if unnamed else set()
    gone = [name for name in unnamed if name not in merged]
    remove(folder, gone)
    return len(gone)


def _named(store: Store, batch: int) -> set[str]:
    manifest = store.batches.manifest(batch)
    files = () if manifest is None else (*manifest.files, *manifest.late_files)
    return {file.path for file in files}
