"""What the sweep at a start takes, where many result files lie in one directory.

python -m tests.service.sweep_cost 128 1000      batches that are not merged yet, and files of each
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from catalog.store.store import Store
from catalog.values.batch import ResultFile
from operators.storage.folder import names
from service.commit.sweep import sweep
from tests.catalog.examples import commit, manifest
from tests.epochs import begin_epoch

_FAMILIES = 20


def timed(what: str, run: Callable[[], object]) -> None:
    """Print how long something takes."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    run()
    taken_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    print(f"{what:24} {taken_s:6.3f} s, {cpu_s:6.3f} s of CPU time")


def main(batches: int, files: int) -> None:
    """Write catalog and empty files, then list and sweep them."""
    with TemporaryDirectory() as directory:
        results, late = Path(directory) / "results", Path(directory) / "late"
        results.mkdir()
        late.mkdir()
        with Store.open(f"sqlite:///{directory}/catalog.db") as store:
            epoch = begin_epoch(store)
            for batch in range(batches):
                made = tuple(
                    ResultFile(
                        f"b{batch:09d}-{n % _FAMILIES:012x}-e{epoch}-{n:012x}.parquet", "f", 10, 4000, 1
                    )
                    for n in range(files)
                )
                for file in made:
                    (results / file.path).touch()
                commit(store, replace(manifest(batch, epoch), files=made))
            timed("listing", lambda: names(results))
            timed("first sweep of all", lambda: sweep(store, results, late))
            timed("sweep at a later start", lambda: sweep(store, results, late))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
