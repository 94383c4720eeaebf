"""The sampler: what processes and files of the service take, every ten seconds, and its batches."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import httpx
import psutil

from tests.bench.feeding import STREAMS, Worker
from tests.bench.loaded import LoadedService
from tests.bench.processes import of_each

EVERY_S = 10.0
#: Names of processes here, by those of ``kind_of``; all others start workers, or wait for the end of one.
_KINDS = {"service": "service", "JVM": "JVM", "python_streamin": "source", "worker_daemon": "workers"}
#: Manifests read at a time.
_BATCHES = 200


class Sampler(Worker):
    """Looks at a service.

    Attributes:
        samples: What was seen, with ``at_s``; names say whether a figure is in bytes.
        batches: The committed batches.
    """

    def __init__(self, loaded: LoadedService) -> None:
        super().__init__(loaded.root)
        self.samples: list[dict[str, float]] = []
        self.batches: list[dict[str, float]] = []
        self._loaded = loaded

    def _work(self, http: httpx.Client) -> None:
        data_dir = self._loaded.service.data_dir
        while not self._stopped.is_set():
            began_s = time.time()
            sample = {"at_s": began_s, "load": os.getloadavg()[0]}
            sample |= _processes(self._loaded.service.process.pid) | _files(data_dir)
            for name in ("catalog", "events"):
                sample |= dict(_database(data_dir / f"{name}.db", name))
            self.samples.append(sample)
            self._follow()
            self._stopped.wait(max(0.0, began_s + EVERY_S - time.time()))
        self._follow()

    def _follow(self) -> None:
        """Take the batches committed since the last look."""
        store = self._loaded.store
        ids = {stream.name: str(stream.id) for stream in store.streams.all()}
        while found := store.batches.manifests(len(self.batches), len(self.batches) + _BATCHES - 1):
            results: Counter[int] = Counter()
            end = found[-1].batch + 1
            for batch, _, rows in store.counts.of_queries(store.counts.totals(), found[0].batch, end=end):
                results[batch] += rows
            for manifest in found:
                if manifest.batch != len(self.batches):
                    raise RuntimeError(f"batch {len(self.batches)} was dropped before it was seen")
                ends = dict(manifest.input_end)
                self.batches.append(
                    {
                        **{f"end {name}": ends.get(ids[name], 0) for name in STREAMS},
                        "plan_version": manifest.plan_version,
                        "late_rows": sum(counters.late_rows for counters in manifest.streams),
                        "results": results[manifest.batch],
                        "state_rows": manifest.state_rows,
                        "state_bytes": manifest.state_bytes,
                        "segments": sum(counters.segments for counters in manifest.slices),
                        "at_s": manifest.committed_at_us / 1e6,
                    }
                )


def _processes(pid: int) -> dict[str, float]:
    """Return figures of the service's processes, added up by kind, and of all of them."""
    added: defaultdict[str, float] = defaultdict(float)
    for (_, kind), figures in of_each(pid, _figures):
        for name, value in figures.items():
            added[f"{_KINDS.get(kind, 'helpers')} {name}"] += value
            added[f"all {name}"] += value
    return added


def _figures(process: psutil.Process) -> dict[str, float]:
    memory = process.memory_full_info()
    return {
        "processes": 1,
        "private_bytes": memory.uss,
        "pss_bytes": memory.pss,
        "handles": process.num_fds(),
        "threads": process.num_threads(),
    }


def _files(data_dir: Path) -> dict[str, float]:
    """Return numbers and bytes of files by the directory that they are in."""
    added: defaultdict[str, float] = defaultdict(float)
    for directory, _, names in os.walk(data_dir):
        parts = Path(directory).relative_to(data_dir).parts
        kind = "/".join(parts[: 2 if parts[:1] == ("checkpoint",) else 1])
        for name in names:
            if not parts and name.startswith(("catalog.db", "events.db")):
                continue  # see ``_database``
            with suppress(FileNotFoundError):  # removed meanwhile
                added[f"{kind or name} files_bytes"] += (Path(directory) / name).stat().st_size
                added[f"{kind or name} files"] += 1
    return added


def _database(path: Path, name: str) -> Iterator[tuple[str, float]]:
    """Yield the size of a database, and what of it is in use."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        pages, free, page_bytes = (
            connection.execute(f"PRAGMA {fact}").fetchone()[0]
            for fact in ("page_count", "freelist_count", "page_size")
        )
    yield f"{name}.db bytes", pages * page_bytes
    yield f"{name}.db used_bytes", (pages - free) * page_bytes
    wal = path.with_name(f"{path.name}-wal")
    yield f"{name}.db wal_bytes", wal.stat().st_size if wal.exists() else 0
