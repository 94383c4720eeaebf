"""A data directory with committed batches and Spark's logs of them, without Spark."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from catalog.store.store import Store
from catalog.values.batch import BatchManifest, MergedFile, ResultFile
from catalog.values.plan import Plan
from catalog.values.stream import GeneratorSource, Source
from service.checkpoint.buckets import CHECKPOINT_SETTING
from service.checkpoint.spark_log import Offset, SparkLog
from service.config.data_dir import DataDir, open_data_dir
from service.recovery.checkpoint import mark_checkpoint
from service.recovery.opening import open_catalog
from service.results.files.result_check import length_and_checksum
from tests.catalog.examples import manifest
from tests.epochs import begin_epoch
from tests.service.inputs.streams import stream_of
from tests.service.spark_logs import write_begun, write_done, write_state

CHECKPOINT = "c57b7a71801e"
MADE: Source = GeneratorSource(1.0)


def input_end(batch: int) -> Offset:
    """Offset at the end of a batch."""
    return {"1": batch + 1, "batch": batch + 1, "control": 1}


@dataclass(slots=True)
class Life:
    """A data directory as an engine leaves it.

    Attributes:
        data_dir: Its paths.
        store: Its catalog.
        ahead: By how much Spark's numbers of batches are above ours: 1 where its first one is empty.
        source: Where the one stream that the batches read has its rows.
        state: Whether batches leave files of Spark's state, too.
    """

    data_dir: DataDir
    store: Store
    ahead: int = 0
    source: Source = MADE
    state: bool = False
    log: SparkLog = field(init=False)

    def __post_init__(self) -> None:
        self.log = SparkLog(self.data_dir.checkpoint)
        if self.store.settings.get(CHECKPOINT_SETTING) is None:
            facts = {"id": CHECKPOINT, "buckets": 1, "partitions": 1, "sealed": True}
            self.store.settings.set(CHECKPOINT_SETTING, facts)
            mark_checkpoint(self.store, self.data_dir, CHECKPOINT)
            stream = self.store.streams.add(stream_of(self.source, stream_id=0, name="A"))
            self.store.control_log.append(plan=Plan(1, "mem-opt", (stream,), ()))
            begin_epoch(self.store)
            for number in range(self.ahead):
                write_begun(self.log, number, {"batch": 0, "control": 0})
                write_done(self.log, number)

    def commit(self, batch: int, *, done: bool = True) -> None:
        """Run a batch, with a result file; without ``done`` the engine dies before Spark's commit log."""
        self.begin(batch)
        self.store.batches.commit(self.manifest(batch))
        if done:
            self.end(batch)

    def begin(self, batch: int) -> None:
        """Write a batch to Spark's offset log."""
        write_begun(self.log, batch + self.ahead, input_end(batch))

    def end(self, batch: int) -> None:
        """Write a batch to Spark's commit log."""
        write_done(self.log, batch + self.ahead)
        if self.state:
            write_state(self.log.checkpoint, batch + self.ahead + 1)

    def entry(self, name: str) -> Path:
        """Return the file of an entry, such as ``offsets/4``, by our number."""
        log, _, batch = name.partition("/")
        return self.data_dir.checkpoint / log / str(int(batch) + self.ahead)

    def manifest(self, batch: int) -> BatchManifest:
        """Write the result file of a batch and return its manifest."""
        epoch = self.store.lease.epoch()
        path = self.data_dir.results / f"b{batch:09}-f-e{epoch}-{batch}.parquet"
        path.write_bytes(b"results of batch %d" % batch)
        file = ResultFile(path.name, "f", 1, *length_and_checksum(path))
        end = tuple(sorted(input_end(batch).items()))
        return replace(manifest(batch, epoch), files=(file,), input_end=end, digest=f"digest {batch}")

    def merge(self, batches: int) -> None:
        """Have the files of the first batches named by the table of merged files."""
        old = self.store.compaction.old_batches(kept=0, count=batches)
        assert old is not None
        at_us = [(m, file, m.committed_at_us) for m in old.manifests for file in m.files]
        files = [MergedFile(file, False, m.batch, m.batch, us, us, 1) for m, file, us in at_us]
        assert self.store.compaction.name(old, files)

    def files(self) -> set[str]:
        """Return the names of the result files that are there."""
        return {path.name for path in self.data_dir.results.iterdir()}


@contextmanager
def a_life(
    root: Path, batches: int = 0, *, ahead: int = 0, source: Source = MADE, state: bool = False
) -> Iterator[Life]:
    """Open a data directory, and run batches in it if it is new."""
    data_dir = open_data_dir(root)
    with open_catalog(data_dir) as store:
        life = Life(data_dir, store, ahead, source, state)
        for batch in range(batches):
            life.commit(batch)
        yield life


def forget_identity(root: Path) -> None:
    """Make of a data directory what a version left that knew no identity."""
    for path in (root / "identity.json", root / "checkpoint" / "identity.json"):
        path.unlink()
    for file, statement in (
        ("catalog.db", "DELETE FROM settings WHERE key = 'identity'"),
        ("events.db", "DROP TABLE identity"),
    ):
        connection = sqlite3.connect(root / file)
        connection.execute(statement)
        connection.commit()
        connection.close()
