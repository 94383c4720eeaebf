"""A job without Spark on a disk that forgets: what was not synced is whole, empty, half or gone after a cut.

    offset log -> segments, results -> sync -> catalog -> state -> commit log
        ^              ^                ^         ^         ^          ^        power may fail after each

The workers' own code reads, joins and writes, the engine's own code commits. Spark's part is what
``service.checkpoint.spark_log`` and the state store's files are: an entry per batch, a manifest per bucket.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from catalog.store.store import Store
from catalog.values.plan import Plan
from operators.segments.files.segment_files import Fence, SegmentFiles
from service.checkpoint.buckets import CHECKPOINT_SETTING
from service.checkpoint.spark_log import SparkLog
from service.commit import commit
from service.commit.commit import BatchCommitter
from service.config.data_dir import DataDir, open_data_dir
from service.job.chain_processor import ChainOptions, forget_checkpoint
from service.job.packing import RowFiles
from service.recovery import identity
from service.recovery.checkpoint import check_checkpoint, mark_checkpoint
from service.recovery.opening import open_catalog
from service.results.files.result_check import check_files
from service.results.files.result_files import ResultWriter
from tests.bench.migration.carrying import scheduled
from tests.bench.migration.load import Load
from tests.epochs import begin_epoch
from tests.pipeline import Piece, Pipeline, generated
from tests.service.recovery.lives import CHECKPOINT
from tests.service.spark_logs import none_voided, write_begun, write_done

#: A minute of both streams in a batch.
LOAD = Load(state_rows=12_000, queries=4, batch_rows=6_000, longest_s=120.0)
BUCKETS = 2

#: The files of a directory, by name.
Files = dict[str, bytes]
#: Results of a batch, in order.
Results = list[tuple[object, ...]]


@dataclass(slots=True)
class Job(Pipeline):
    """The job on one data directory, from where its checkpoint is.

    Attributes:
        data_dir: The data directory.
        store: Its catalog.
        reached: Called after each step of a batch.
        catalog_url: URL of its catalog; None: in the data directory.
    """

    reached: Callable[[str], None] = lambda _: None
    catalog_url: str | None = None
    data_dir: DataDir = field(init=False)
    store: Store = field(init=False)
    carries: dict[int, Plan] = field(init=False)
    _committer: BatchCommitter = field(init=False)

    def __post_init__(self) -> None:
        self.data_dir = open_data_dir(self.directory)
        self.store = open_catalog(self.data_dir, self.catalog_url)
        Pipeline.__post_init__(self)
        shutil.rmtree(self._options.segments_dir)
        check_checkpoint(self.store, self.data_dir, unsynced=True)
        self.carries = self.carried()
        if self.store.settings.get(CHECKPOINT_SETTING) is None:
            self.store.settings.set(CHECKPOINT_SETTING, {"id": CHECKPOINT, "sealed": True})
            for stream in self.plan.streams:
                self.store.streams.add(stream)
            for plan in self.carries.values():
                self.store.control_log.append(plan=plan)
        mark_checkpoint(self.store, self.data_dir, CHECKPOINT)
        epoch = begin_epoch(self.store)
        fence = Fence(self.data_dir.fence, epoch)
        fence.announce()
        results, late = self.data_dir.results, self.data_dir.late
        self._options = ChainOptions(
            checkpoint_id=CHECKPOINT,
            bucket_keys=tuple(range(self.buckets)),
            segments_dir=self.data_dir.segments,
            cache_bytes=1 << 30,
            engine_lock="",
            writer=ResultWriter(results, None, epoch),
            fence=fence,
        )
        self._row_files = RowFiles(SegmentFiles(self.data_dir.segments, fence), 0)
        log = SparkLog(self.data_dir.checkpoint)
        self._committer = BatchCommitter(self.store, results, late, epoch, "", log, none_voided)
        self._committer.sweep()
        self._load_state(log)

    def carried(self) -> dict[int, Plan]:
        """Return the plans by the batch in which they take effect."""
        changes, at, _ = scheduled(LOAD, gap=1)
        return {n: c.plan for n, c in zip(at, changes, strict=True) if c.plan is not None}

    def pieces(self, batch: int) -> Sequence[Piece]:
        """Return what a batch has to read."""
        return [generated(stream, batch, LOAD.batch_s) for stream in self.plan.streams]

    def _load_state(self, log: SparkLog) -> None:
        """Go on as Spark does: with the state after the last batch of the commit log."""
        forget_checkpoint(CHECKPOINT)
        self.batch = max(log.done(), default=-1) + 1
        if not self.batch:
            return
        for bucket, handle in enumerate(self._handles):
            manifest = self._state(bucket, self.batch).read_bytes()
            handle.getValueState("manifest", "").update((manifest,))
        self.change(next(plan for n, plan in sorted(self.carries.items(), reverse=True) if n < self.batch))
        self._coming = None
        before = self.store.batches.manifest(self.batch - 1)
        assert before is not None
        self._senders = {counters.bucket for counters in before.exchanged}
        self.watermark_us = self._watermark(self.batch - 1)

    def _watermark(self, batch: int) -> int:
        before = self.store.batches.manifest(batch)
        assert before is not None
        return min(s.watermark_us for s in before.streams if s.watermark_us is not None)

    def _state(self, bucket: int, version: int) -> Path:
        return self.data_dir.checkpoint / "state" / "0" / str(bucket) / f"{version}.changelog"

    def run(self, batches: int) -> None:
        """Run up to a number of batches."""
        log = SparkLog(self.data_dir.checkpoint)
        while self.batch < batches:
            batch = self.batch
            if batch in self.carries:
                self.change(self.carries[batch])
            # Spark repeats the entry that is there; else the source chooses, or has it from the catalog.
            if log.input_end(batch) is None:
                write_begun(log, batch, {"1": batch + 1, "batch": batch + 1, "control": self.plan.version})
            self.reached(f"offset log of {batch}")
            packets = self.pack(batch, self.pieces(batch), self.watermark_us)
            reports = []
            for bucket in range(self.buckets):
                reports.append(self.join(bucket, packets[bucket]))
                self.reached(f"bucket {bucket} of {batch}")
            self._committer(reports)
            self.reached(f"manifest of {batch}")
            for bucket, handle in enumerate(self._handles):
                state = self._state(bucket, batch + 1)
                state.parent.mkdir(parents=True, exist_ok=True)
                (manifest,) = handle.getValueState("manifest", "").get() or (b"",)
                state.write_bytes(manifest)
            self.reached(f"state of {batch}")
            write_done(log, batch)
            self.reached(f"commit log of {batch}")
            self.batch += 1
            self.watermark_us = self._watermark(batch)

    def results(self) -> list[Results]:
        """Return what is visible, batch by batch."""
        found = []
        for manifest in self.store.batches.manifests(0, 10**6):
            check_files(self.data_dir.results, manifest.files)
            tables = [pq.read_table(self.data_dir.results / file.path) for file in manifest.files]
            found.append(sorted(row for t in tables for row in zip(*t.to_pydict().values(), strict=True)))
        return found

    def close(self) -> None:
        """Close the catalog and forget what the worker has."""
        Pipeline.close(self)
        self.store.close()


def a_job(root: Path, reached: Callable[[str], None] = lambda _: None, catalog_url: str | None = None) -> Job:
    """Open a data directory, new or as a cut has left it."""
    (first, *_), _, _ = scheduled(LOAD, gap=1)
    return Job(first.plan, BUCKETS, root, reached=reached, catalog_url=catalog_url)


def files_of(root: Path) -> Files:
    """Read all files but those of databases, which sync by themselves."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".db" not in path.name
    }


@dataclass(slots=True)
class Disk:
    """What is on the disk for sure, beside what programs see.

    Attributes:
        root: The data directory.
        synced: Files as they were synced last.
        seed: Of what a cut leaves of the others.
    """

    root: Path
    synced: Files = field(default_factory=dict)
    seed: int = 0

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Notice what is synced: everything in a commit, and marks of identity one by one."""

        def sync(directories: object) -> None:
            self.synced = files_of(self.root)

        synced: dict[int, bytes] = {}

        def sync_file(path: Path) -> None:
            if path.is_file():
                synced[path.stat().st_ino] = path.read_bytes()
                return
            for file in path.iterdir():
                if file.stat().st_ino in synced:
                    self.synced[str(file.relative_to(self.root))] = synced[file.stat().st_ino]

        monkeypatch.setattr(commit, "sync_file_systems", sync)
        monkeypatch.setattr(identity, "sync_file", sync_file)

    def cut(self, into: Path, kind: str) -> None:
        """Write what a power cut now leaves.

        Args:
            into: Directory that does not exist.
            kind: What becomes of what is not synced: ``lost``, ``kept``, ``empty``, or by chance ``any``.
        """
        chance = random.Random(self.seed)
        self.seed += 1
        seen, left = files_of(self.root), dict[str, bytes]()
        for name in sorted(seen.keys() | self.synced.keys()):
            now, before = seen.get(name), self.synced.get(name)
            chosen = [now] if now == before else self._outcomes(now, before)[kind]
            data = chance.choice(chosen)
            if data is not None:
                left[name] = data
        for name, data in left.items():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            (into / name).write_bytes(data)
        into.mkdir(exist_ok=True)
        for name in ("catalog.db", "events.db"):
            with (
                closing(sqlite3.connect(self.root / name)) as now,
                closing(sqlite3.connect(into / name)) as then,
            ):
                now.backup(then)

    @staticmethod
    def _outcomes(now: bytes | None, before: bytes | None) -> dict[str, list[bytes | None]]:
        torn = [] if now is None else [b"", now[: len(now) // 2], b"\0" * len(now)]
        return {
            "lost": [before],
            "kept": [now],
            "empty": [before if now is None else b""],
            "any": [now, before, *torn],
        }
