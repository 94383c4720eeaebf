"""Spark as the job sees it: what is logged, read, joined and stored when, and what a death makes it repeat.

    offsets/n ── partitions ── read, PACK ── buckets ── manifest ── state n + 1 ── commits/n
        |                                                                          |
        └── there, and commits/n is not: the batch is repeated from state n ───────┘

The state of all buckets but the last is stored before the manifest. Tasks run in any order, now and then
twice, in either of two workers.
"""

from __future__ import annotations

import json
import pickle
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
from pyspark.sql.streaming.datasource import ReadMaxRows

from catalog.store.store import Store
from operators.segments.files.segment_files import Fence, SegmentFiles
from service.checkpoint.buckets import CHECKPOINT_SETTING, bucket_keys
from service.checkpoint.spark_log import Offset, SparkLog
from service.commit.commit import BatchCommitter
from service.commit.reporting.bucket_report import BucketReport, decode_report, encode_report, telling
from service.commit.reporting.reports import ReportAddress
from service.config.data_dir import DataDir
from service.config.settings import Settings
from service.inputs.reading.voided import VoidedInput
from service.job import chain_processor, packing
from service.job.chain_processor import ChainProcessor
from service.job.in_process.memory_state import MemoryValue
from service.job.job import JobOptions
from service.job.job_options import job_options
from service.job.source import SluiceReader
from service.recovery.checkpoint import check_checkpoint, mark_checkpoint
from tests.epochs import begin_epoch
from tests.service.spark_logs import write_begun, write_done

#: Spark's ``minBatchesToRetain`` (``service.jvm.spark_configuration``).
_RETAINED = 10
_TWICE = 0.05


@dataclass(slots=True)
class SimulatedSpark:
    """The job of one life of the engine.

    Attributes:
        settings: Settings of the service.
        data_dir: The data directory.
        store: The engine's catalog.
        rng: Chooses orders, workers and tasks that run twice.
        ahead: Whether Spark's first batch is an empty one, as in a service.
        unsynced: Whether power may have failed before this life.
    """

    settings: Settings
    data_dir: DataDir
    store: Store
    rng: Random
    ahead: bool
    unsynced: bool
    _options: JobOptions = field(init=False)
    _reader: SluiceReader = field(init=False)
    _committer: BatchCommitter = field(init=False)
    _workers: list[dict[str, object]] = field(default_factory=lambda: [{}, {}])

    def __post_init__(self) -> None:
        store, data_dir = self.store, self.data_dir
        check_checkpoint(store, data_dir, unsynced=self.unsynced)
        epoch = begin_epoch(store)
        facts = store.settings.get(CHECKPOINT_SETTING)
        if not isinstance(facts, dict):
            buckets = self.settings.bucket_count
            identity = uuid.UUID(int=self.rng.getrandbits(128)).hex[:12]
            facts = {"id": identity, "buckets": buckets, "sealed": True}
        if "partitions" not in facts:
            facts = facts | {"partitions": facts["buckets"]}
            store.settings.set(CHECKPOINT_SETTING, facts)
        mark_checkpoint(store, data_dir, str(facts["id"]))
        fence = Fence(data_dir.fence, epoch)
        fence.announce()
        self._committer = BatchCommitter(
            store,
            data_dir.results,
            data_dir.late,
            epoch,
            "",
            SparkLog(data_dir.checkpoint),
            VoidedInput(store, data_dir.dead_letters, data_dir.events_url(self.settings.storage.catalog_url)),
        )
        self._committer.sweep()
        SegmentFiles(data_dir.segments, fence).sweep(str(facts["id"]))
        partitions = int(str(facts["partitions"]))
        self._options = job_options(
            self.settings,
            data_dir,
            checkpoint_id=str(facts["id"]),
            bucket_keys=bucket_keys(int(str(facts["buckets"])), partitions),
            partitions=partitions,
            epoch=epoch,
            reports=ReportAddress("", None, b""),
            bounded=False,
            sealed=True,
        )
        self._reader = SluiceReader(self._options.source, clock_s=lambda: 0.0)
        self._reader.getDefaultReadLimit()

    def close(self) -> None:
        """Let go of what the processes of the job have open."""
        if self._reader._store is not None:
            self._reader._store.close()
        if self._reader._inputs is not None and self._reader._inputs._events is not None:
            self._reader._inputs._events.close()

    def step(self) -> bool:
        """Run one batch, or finish the one that was begun; return whether there was one."""
        log = self.data_dir.checkpoint / "offsets"
        begun = sorted(int(path.name) for path in log.iterdir()) if log.is_dir() else []
        if not begun and self.ahead:
            self._log_begun(0, self._reader.initialOffset())
            self._log_done(0)
            begun = [0]
        last = begun[-1] if begun else -1
        end = self._offset(last)
        if last >= 0 and not (self.data_dir.checkpoint / "commits" / str(last)).exists():
            self._run(last, self._offset(last - 1), end)
            return True
        assert self._reader.partitions(end, end) == []
        limit = ReadMaxRows(self.settings.batches.max_rows)
        self._reader._waits = None  # each answer comes at once
        following = self._reader.latestOffset(end, limit)
        if following == end:
            return False
        self._log_begun(last + 1, following)
        self._run(last + 1, end, following)
        return True

    def _offset(self, number: int) -> Offset:
        path = self.data_dir.checkpoint / "offsets" / str(number)
        if number < 0:
            return self._reader.initialOffset()
        line = path.read_text().splitlines()[-1]
        return dict(json.loads(line[line.index("{") :]))

    def _run(self, number: int, start: Offset, end: Offset) -> None:
        keys = self._options.chain.bucket_keys
        packets: dict[int, list[bytes]] = defaultdict(list)
        tasks = self._reader.partitions(dict(start), dict(end))
        if not tasks:  # the empty first batch, once more
            self._log_done(number)
            return
        self.rng.shuffle(tasks)
        for task in tasks:
            reads = [self._read(pickle.loads(pickle.dumps(task))) for _ in self._attempts()]
            for key in keys:
                # Where an executor is lost, its tasks run again for the buckets that are not done yet.
                read = reads[0] if len(reads) == 1 else self.rng.choice(reads)
                packets[key] += [packet for of, packet in read if of == key]
        reports = []
        order = list(keys)
        self.rng.shuffle(order)
        states: dict[int, bytes] = {}
        for key in order:
            self.rng.shuffle(packets[key])
            for _ in self._attempts():
                report, states[key] = self._join(number, key, packets[key])
            reports.append(report)
            if key != order[-1]:
                self._store_state(number, key, states[key])
        # Of a batch that is there already the committer removes these files: it is not asked again.
        repeated = self.store.batches.manifest(reports[0].batch) is not None
        for _ in range(1) if repeated else self._attempts():
            self._committer(sorted(reports, key=lambda report: report.bucket))
        self._store_state(number, order[-1], states[order[-1]])
        self._log_done(number)
        for kind in ("offsets", "commits"):
            (self.data_dir.checkpoint / kind / str(number - _RETAINED)).unlink(missing_ok=True)

    def _attempts(self) -> Iterator[int]:
        return iter(range(2 if self.rng.random() < _TWICE else 1))

    def _read(self, task: packing.InputPartition) -> list[tuple[int, bytes]]:
        files = packing.RowFiles.of(self._options.source)
        batches = packing.read(task, self._options.chain.bucket_keys, files)
        return [pair for b in batches for pair in zip(*(c.to_pylist() for c in b.columns), strict=True)]

    def _join(self, number: int, key: int, packets: list[bytes]) -> tuple[BucketReport, bytes]:
        chain_processor._workers = self.rng.choice(self._workers)  # ours are empty
        path = self._state(number, key)
        state = MemoryValue((path.read_bytes(),) if path.exists() else None)
        frame = pd.DataFrame({"packet": packets})
        processor = ChainProcessor(self._options.chain, state)  # by Spark's names
        report, routes = processor.process(key, iter([frame]))
        numbers = np.concatenate([np.empty(0, dtype=np.int64), *(table.numbers for table in routes)])
        wanted = self._committer.unknown_routes(numbers)
        report = decode_report(encode_report(telling(report, routes, wanted)))
        assert state.value is not None
        return report, bytes(state.value[0])

    def _state(self, version: int, key: int) -> Path:
        return self.data_dir.checkpoint / "state" / "0" / str(key) / f"{version}.changelog"

    def _store_state(self, number: int, key: int, value: bytes) -> None:
        path = self._state(number + 1, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)

    def _log_begun(self, number: int, end: Offset) -> None:
        write_begun(SparkLog(self.data_dir.checkpoint), number, end)

    def _log_done(self, number: int) -> None:
        write_done(SparkLog(self.data_dir.checkpoint), number)


def read_manifests(checkpoint: Path, number: int) -> dict[int, bytes]:
    """Return the state of each bucket after a batch, as ``service.engine.manifest_reader`` does."""
    states = (checkpoint / "state" / "0").glob(f"*/{number + 1}.changelog")
    return {int(path.parent.name): path.read_bytes() for path in states}
