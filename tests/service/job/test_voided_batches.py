"""A batch that was voided is repeated without the rows, which are kept with the reason."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq

from service.inputs.reading.voided import VoidedBatch, void_batch
from tests.service.job.test_replayed_batches import Spark, spark


def begin_batch(found: Spark) -> None:
    """Log a batch as Spark does, and leave it there."""
    found.offsets.append(found.latest())


def void(found: Spark, *stream_ids: int) -> None:
    void_batch(found.store, VoidedBatch(len(found.read), stream_ids, "it fails", "ops", 7))


def test_rows_of_one_stream_are_left_out_and_the_others_read(tmp_path: Path) -> None:
    with spark(tmp_path) as found:
        bad, good = found.add_stream(), found.add_stream()
        found.batch()
        found.post(bad, 3)
        found.post(good, 2)
        begin_batch(found)
        assert found.partitions() == {bad.id: (0, 3), good.id: (0, 2)}
        void(found, bad.id)
        assert found.partitions() == {good.id: (0, 2)}
        assert not (tmp_path / "dead").exists(), "partitions has no side effect"
        # The next engine repeats the batch without these rows.
        found.start()
        assert found.read[-1] == {good.id: (0, 2)}
        facts = json.loads((tmp_path / "dead" / "batch-000000001-S0.json").read_text())
        assert (facts["rows"], facts["reason"], facts["actor"], facts["unread"]) == (3, "it fails", "ops", [])
        rows = pq.read_table(tmp_path / "dead" / "batch-000000001-S0.parquet")
        assert rows.column("k").to_pylist() == [0, 1, 2]
        # The next batch is whole again.
        found.post(bad, 1)
        found.batch()
        assert found.read[-1] == {bad.id: (3, 4)}


def test_all_rows_of_a_batch_can_be_left_out(tmp_path: Path) -> None:
    with spark(tmp_path) as found:
        streams = [found.add_stream(), found.add_stream()]
        found.batch()
        for stream in streams:
            found.post(stream, 2)
        begin_batch(found)
        void(found)
        found.commit(found.partitions())
        assert found.read[-1] == {}
        assert len(list((tmp_path / "dead").glob("*.parquet"))) == 2


def test_rows_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with spark(tmp_path) as found:
        stream = found.add_stream()
        found.batch()
        found.post(stream, 2)
        begin_batch(found)
        with closing(sqlite3.connect(str(found.events.file))) as events, events:
            events.execute("UPDATE blobs SET data = x'00'")
        void(found)
        found.commit(found.partitions())
        (told,) = (tmp_path / "dead").iterdir()
        facts = json.loads(told.read_text())
        assert facts["rows"] == 0
        assert len(facts["unread"]) == 1
