"""Results in a topic: each batch once, whatever crashes in between, with keys and ids of messages.

The brokers of these tests take transactions but neither hide what was aborted nor fence a former producer, so
both are Kafka's to keep.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.values.sink import TopicSink
from catalog.values.stream import Column, KafkaCluster, KafkaSource, Stream
from service.errors import SinkFailed
from service.inputs.partitions import TopicRange
from service.inputs.sources.topics import topic_reader
from service.inputs.sources.topics.topic_reader import read_messages
from service.inputs.sources.topics.topics import Topics
from service.sinks.topic import send_batch
from tests.catalog.examples import dying
from tests.service.kafka.brokers import Brokers
from tests.service.sinks.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        made.delivery.catalog_id = "c1"
        yield made


def messages_in(kafka: Brokers, topic: str) -> list[Any]:
    """All messages of a topic, by partition and offset."""
    stream = Stream(1, "S", (Column("ts", "timestamp"),), "ts", 0, KafkaSource(kafka.cluster, topic))
    topics = Topics()
    ranges = [TopicRange(p, 0, end, True) for p, (_, end) in sorted(topics.ends(stream).items()) if end]
    topics.close()
    try:
        return read_messages(stream, ranges) if ranges else []
    finally:
        topic_reader._consumer.cache_clear()


def test_a_result_is_a_message_with_key_and_id(world: World, kafka: Brokers) -> None:
    kafka.tell("create", "gusts", 3)
    world.set_sink(TopicSink(kafka.cluster, "gusts", key="k"))
    for count in (4, 0, 7):
        world.commit(count)
    assert world.deliver() == 2
    found = messages_in(kafka, "gusts")
    rest = world.by_batch()
    assert sorted(json.loads(m.value())["w"] for m in found) == sorted(
        row["w"] for rows in rest.values() for row in rows
    )
    ids = {dict(m.headers())["sluice-id"].decode() for m in found}
    assert ids == {f"c1-{world.series}-{batch}-{n}" for batch in rest for n in range(len(rest[batch]))}
    for m in found:
        assert m.key().decode() == str(json.loads(m.value())["k"])
        assert dict(m.headers())["sluice-query"] == b"q"
    by_key: dict[bytes, set[int]] = {}
    for m in found:
        by_key.setdefault(m.key(), set()).add(m.partition())
    assert all(len(partitions) == 1 for partitions in by_key.values())


@pytest.mark.parametrize("writes", [0, 1])
def test_a_batch_that_comes_again_after_a_crash_is_known(world: World, kafka: Brokers, writes: int) -> None:
    """It dies before the mark is set, and after the topic's commit and before the catalog's."""
    topic = f"crash{writes}"
    kafka.tell("create", topic, 2)
    world.set_sink(TopicSink(kafka.cluster, topic, key="k"))
    for count in (3, 2):
        world.commit(count)
        with dying(world.store, writes):
            world.deliver()
        world.delivery.close()
        world.delivery = world.new_delivery()
        world.delivery.catalog_id = "c1"
        assert world.present().pending == 1
        assert world.deliver() == 1
    ids = [dict(m.headers())["sluice-id"] for m in messages_in(kafka, topic)]
    assert len(ids) == len(set(ids)) == 5


def test_a_result_punctuation_follows_the_results_of_its_key(world: World, kafka: Brokers) -> None:
    kafka.tell("create", "over", 3)
    sink = TopicSink(kafka.cluster, "over", key="k")
    world.set_sink(sink)
    part = pa.RecordBatch.from_pydict(
        {
            "k": ["x", "y", "z", None, None, None],
            "v": [1, 2, 3, None, None, None],
            "_punctuation": [None, None, None, *(f'{{"k":"{k}"}}' for k in "xyz")],
        }
    )
    send_batch(world.store, "c1", world.present(), sink, 0, iter([part]))
    found: dict[bytes, list[Any]] = {}
    partitions: dict[bytes, set[int]] = {}
    for m in messages_in(kafka, "over"):
        found.setdefault(m.key(), []).append(json.loads(m.value()))
        partitions.setdefault(m.key(), set()).add(m.partition())
    assert found == {
        k.encode(): [{"k": k, "v": v}, {"_punctuation": {"k": k}}] for v, k in enumerate("xyz", 1)
    }
    assert all(len(each) == 1 for each in partitions.values())


def test_what_cannot_be_sent_is_told(world: World, kafka: Brokers) -> None:
    kafka.tell("create", "told", 1)
    world.set_sink(TopicSink(kafka.cluster, "told", key="nothing"))
    world.commit(2)
    with pytest.raises(SinkFailed, match='no column "nothing" for the key'):
        world.deliver()
    assert world.present().pending == 1


def test_brokers_that_are_away_are_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.sinks.topic.WAIT_S", 1.0)
    world.set_sink(TopicSink(KafkaCluster("127.0.0.1:1"), "told"))
    world.commit(2)
    with pytest.raises(SinkFailed, match="Kafka: "):
        world.deliver()
