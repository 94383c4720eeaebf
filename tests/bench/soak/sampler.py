"""The sampler: what processes and files of the service take, every ten seconds, and its batches."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TextIO

import psutil

from catalog.store.store import Store
from tests.bench.peers.feeding import Worker
from tests.bench.processes import of_each
from tests.bench.soak.rows import STREAMS

EVERY_S = 10.0
#: Names of processes here, by those of ``kind_of``; all others start workers, or wait for the end of one.
_KINDS = {"service": "service", "JVM": "JVM", "python_streamin": "source", "worker_daemon": "workers"}
#: Manifests read at a time.
_BATCHES = 200


class Sampler(Worker):
    """Writes ``samples.jsonl`` and ``batches.jsonl``.

    Args:
        pid: Process of the service.
        data_dir: Its data directory.
        directory: Of what is written.

    Attributes:
        rows: Rows in committed batches.
    """

    def __init__(self, pid: int, data_dir: Path, directory: Path) -> None:
        super().__init__()
        self.rows = 0
        self._pid, self._data_dir, self._directory = pid, data_dir, directory
        self._next_batch = 0

    def _work(self) -> None:
        store = Store.open(f"sqlite:///{self._data_dir / 'catalog.db'}", migrate=False)
        with (
            closing(store),
            (self._directory / "samples.jsonl").open("w", encoding="utf-8") as samples,
            (self._directory / "batches.jsonl").open("w", encoding="utf-8") as batches,
        ):
            due_s = time.monotonic()
            while not self._stopped.wait(max(0.0, due_s - time.monotonic())):
                _write(samples, {"at_s": time.time(), "load": os.getloadavg()[0], **self._sample()})
                self._follow(store, batches)
                due_s += EVERY_S
            self._follow(store, batches)

    def _sample(self) -> dict[str, float]:
        figures = dict(_processes(self._pid))
        figures |= dict(_files(self._data_dir))
        for name in ("catalog", "events"):
            figures |= dict(_database(self._data_dir / f"{name}.db", name))
        return figures

    def _follow(self, store: Store, out: TextIO) -> None:
        """Write down the batches committed since the last look."""
        ids = {stream.name: str(stream.id) for stream in store.streams.all()}
        while found := store.batches.manifests(self._next_batch, self._next_batch + _BATCHES - 1):
            results = store.counts.of_batches(found[0].batch, found[-1].batch + 1)
            for manifest in found:
                if manifest.batch != self._next_batch:
                    raise RuntimeError(f"batch {self._next_batch} was dropped before it was seen")
                ends = dict(manifest.input_end)
                self.rows += sum(counters.rows for counters in manifest.streams)
                _write(
                    out,
                    {
                        "batch": manifest.batch,
                        "plan_version": manifest.plan_version,
                        "ends": [ends.get(ids[name], 0) for name in STREAMS],
                        "rows": sum(counters.rows for counters in manifest.streams),
                        "late_rows": sum(counters.late_rows for counters in manifest.streams),
                        "results": results.get(manifest.batch, 0),
                        "state_rows": manifest.state_rows,
                        "state_bytes": manifest.state_bytes,
                        "segments": sum(counters.segments for counters in manifest.slices),
                        "committed_us": manifest.committed_at_us,
                    },
                )
                self._next_batch += 1


def read_lines(path: Path) -> list[dict[str, float]]:
    """Return the objects of a file of the sampler."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _write(out: TextIO, document: dict[str, object]) -> None:
    out.write(json.dumps(document) + "\n")
    out.flush()


def _processes(pid: int) -> Iterator[tuple[str, float]]:
    """Yield figures of the service's processes, added up by kind, and of all of them."""
    added: defaultdict[str, float] = defaultdict(float)
    for (_, kind), figures in of_each(pid, _figures):
        for name, value in figures.items():
            added[f"{_KINDS.get(kind, 'helpers')} {name}"] += value
            added[f"all {name}"] += value
    yield from added.items()


def _figures(process: psutil.Process) -> dict[str, float]:
    memory, times = process.memory_full_info(), process.cpu_times()
    return {
        "processes": 1,
        "private_bytes": memory.uss,
        "pss_bytes": memory.pss,
        "rss_bytes": memory.rss,
        "handles": process.num_fds(),
        "threads": process.num_threads(),
        "cpu_s": times.user + times.system,
    }


def _files(data_dir: Path) -> Iterator[tuple[str, float]]:
    """Yield numbers and bytes of files by the directory that they are in."""
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
    yield from added.items()


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
