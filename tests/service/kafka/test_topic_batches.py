"""Topics in the batches of the one job: replayed ranges, brokers that are away, messages that are gone."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from catalog.values.stream import KafkaSource
from service.engine.retry import can_pass
from service.errors import KafkaDown, MessageRejected, MessagesLost
from service.inputs.partitions import TopicRange
from service.inputs.reading.read import read_partition
from service.inputs.reading.voided import VoidedBatch, void_batch
from service.job.reader_tasks import PackPartition
from service.job.source import SluiceReader
from tests.service.job.test_replayed_batches import Spark, spark
from tests.service.kafka.brokers import Brokers, brokers
from tests.service.kafka.test_topics import event


def read(found: Spark) -> dict[str, list[int]]:
    """Return the keys of the last batch in the log, by stream."""
    assert found.reader is not None
    before = found.offsets[-2] if len(found.offsets) > 1 else found.reader.initialOffset()
    streams = {stream.id: stream for stream in found.streams}
    keys: dict[str, list[int]] = {}
    for task in found.reader.partitions(before, found.offsets[-1]):
        if isinstance(task, PackPartition):
            stream = streams[task.piece.stream_id]
            rows = read_partition(stream, task.piece).column("k").to_pylist()
            keys.setdefault(stream.name, []).extend(rows)
    return keys


def begin(found: Spark) -> None:
    found.offsets.append(found.latest())
    assert found.offsets[-1], "there is a batch"


def test_a_batch_that_is_replayed_has_the_same_events(kafka: Brokers, tmp_path: Path) -> None:
    kafka.tell("create", "replayed", 2)
    kafka.produce("replayed", [event(k, k, k % 2) for k in range(6)])
    with spark(tmp_path) as found:
        stream = found.add_stream(KafkaSource(kafka.cluster, "replayed"))
        begin(found)
        assert found.offsets[-1] == {"batch": 1, "control": 1, f"{stream.id}/0": 3, f"{stream.id}/1": 3}
        first = read(found)
        assert sorted(first["S0"]) == [0, 1, 2, 3, 4, 5]
        kafka.produce("replayed", [event(9, 9, 1)])
        found.reader = SluiceReader(found.reader._options)  # another one, after a crash
        assert read(found) == first
        found.commit({})
        found.start()
        begin(found)
        assert read(found) == {"S0": [9]}


def test_other_streams_go_on_while_brokers_are_away(tmp_path: Path) -> None:
    with brokers() as kafka, spark(tmp_path) as found:
        kafka.tell("create", "away", 1)
        kafka.produce("away", [event(1, 1)])
        for broker in (1, 2, 3):
            kafka.tell("down", broker)
        found.add_stream(KafkaSource(kafka.cluster, "away"))
        posted = found.add_stream()
        now_s = 0.0
        found.reader = SluiceReader(found.reader._options, clock_s=lambda: now_s)
        found.post(posted, 2)
        begin(found)
        assert read(found) == {"S1": [0, 1]}
        found.commit({})
        assert found.latest() == {}
        for broker in (1, 2, 3):
            kafka.tell("up", broker)
        now_s = 60.0
        begin(found)
        assert read(found) == {"S0": [1]}


@pytest.mark.slow
def test_a_bounded_run_does_not_end_where_brokers_are_away(tmp_path: Path) -> None:
    with brokers() as kafka, spark(tmp_path) as found:
        kafka.tell("create", "away", 1)
        for broker in (1, 2, 3):
            kafka.tell("down", broker)
        found.add_stream(KafkaSource(kafka.cluster, "away"))
        assert found.reader is not None
        found.reader.prepareForTriggerAvailableNow()
        with pytest.raises(KafkaDown) as down:
            found.latest()
        assert can_pass(down.value.primary)


def test_the_job_goes_on_behind_messages_that_are_gone(kafka: Brokers, tmp_path: Path) -> None:
    kafka.tell("create", "gone", 1)
    kafka.produce("gone", [event(k, k) for k in range(4)])
    with spark(tmp_path) as found:
        stream = found.add_stream(KafkaSource(kafka.cluster, "gone"))
        begin(found)
        assert read(found) == {"S0": [0, 1, 2, 3]}
        found.commit({})
        kafka.produce("gone", [event(k, k) for k in range(4, 10)])
        kafka.tell("drop", "gone", 0, 7)
        found.start()
        begin(found)
        assert found.offsets[-1][f"{stream.id}/0"] == 7, "what is gone is a batch of its own"
        with pytest.raises(MessagesLost, match='messages 4 to 6 of partition 0 of topic "gone" were deleted'):
            read(found)
        void_batch(found.store, VoidedBatch(1, (stream.id,), "gone", "ops", 7))
        assert read(found) == {}
        found.commit({})
        facts = json.loads((tmp_path / "dead" / "batch-000000001-S0.json").read_text())
        assert "messages 4 to 6" in facts["unread"][0]
        begin(found)
        assert read(found) == {"S0": [7, 8, 9]}


def test_a_batch_that_a_message_stops_keeps_its_rows_when_it_is_skipped(
    kafka: Brokers, tmp_path: Path
) -> None:
    kafka.tell("create", "stopped", 1)
    kafka.produce("stopped", [event(1, 1), {"value": b"{", "partition": 0}, event(2, 2)])
    with spark(tmp_path) as found:
        stream = found.add_stream(KafkaSource(kafka.cluster, "stopped"))
        begin(found)
        (task,) = found.reader.partitions({"batch": 0, "control": 0}, found.offsets[-1])
        assert isinstance(task, PackPartition)
        assert task.piece.ranges == (TopicRange(0, 0, 3, begins=True),)
        with pytest.raises(MessageRejected, match="message 1 of partition 0"):
            read(found)
        void_batch(found.store, VoidedBatch(0, (stream.id,), "bad", "ops", 7))
        assert read(found) == {}
        found.commit({})
        rows = pq.read_table(tmp_path / "dead" / "batch-000000000-S0.parquet")
        assert rows.column("k").to_pylist() == [1, 2]
        (letter,) = (tmp_path / "dead" / "S0-0-000000000000.jsonl").read_text().splitlines()
        assert json.loads(letter)["offset"] == 1
