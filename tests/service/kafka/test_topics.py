"""Topics as streams, against brokers in another process: positions, alignment, replay, what goes wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from catalog.store.store import Store
from catalog.values.stream import Column, KafkaSource, Stream
from service.errors import KafkaDown, MessageRejected, MessagesLost, SourceNotFound
from service.inputs.checks.validate import resolve_source, validate_source
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane, TopicPartition, TopicRange
from service.inputs.reading.read import read_partition
from service.inputs.reading.sample import WorkloadRows
from service.inputs.sources.topics.topic_reader import read_topic
from service.inputs.sources.topics.topics import Topics
from service.job.admission.admission import admit
from tests.service.kafka.brokers import Brokers, brokers

COLUMNS = (Column("ts", "timestamp"), Column("k", "bigint"))


def topic_stream(kafka: Brokers, topic: str, *, lateness_us: int = 1000, **source: Any) -> Stream:
    return Stream(1, "S", COLUMNS, "ts", lateness_us, KafkaSource(kafka.cluster, topic, **source))


def event(ts: int, k: int, partition: int = 0, **more: Any) -> dict[str, Any]:
    return {"value": json.dumps({"ts": ts, "k": k, "unknown": [1]}).encode(), "partition": partition} | more


def inputs(store: Store | None = None, **options: Any) -> Inputs:
    return Inputs(store, None, **options)


def rows_of(
    found: Inputs, lanes: Sequence[Lane], before: Mapping[str, int], after: Mapping[str, int]
) -> list[dict[str, Any]]:
    ranges = [(n, before.get(n.key, n.begin), after.get(n.key, n.begin)) for n in lanes]
    (partitions,) = found.partitions(ranges)
    assert found.partitions(ranges) == [partitions]
    return [row for p in partitions for row in read_partition(lanes[0].stream, p).to_pylist()]


def micros(at: datetime) -> int:
    """Return an event time as µs UTC, whatever zone this machine is in."""
    return (at - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def test_batches_have_each_event_once_and_no_partition_runs_ahead(kafka: Brokers) -> None:
    seed = 20261125
    rng = Random(seed)
    kafka.tell("create", "aligned", 3)
    written = []
    for partition, rows in enumerate((700, 300, 50)):
        times = sorted(rng.randrange(100_000) for _ in range(rows))
        written += [event(t, t * 3 + partition, partition) for t in times]
    kafka.produce("aligned", written)
    stream = topic_stream(kafka, "aligned")
    found = inputs()
    now: dict[str, int] = {}
    newest_us, read = -1, []
    while True:
        lanes = found.lanes(stream, now)
        then = admit(lanes, now, found, max_rows=rng.randrange(1, 200)).positions
        if then == {lane.key: now.get(lane.key, lane.begin) for lane in lanes}:
            break
        rows = rows_of(found, lanes, now, then)
        assert rows_of(inputs(), lanes, now, then) == rows, f"another reader, seed {seed}"
        times = [micros(row["ts"]) for row in rows]
        assert min(times) >= newest_us - stream.lateness_us, f"late, seed {seed}"
        newest_us = max(newest_us, *times)
        read += rows
        now = then
    found.close()
    assert sorted(row["k"] for row in read) == sorted(json.loads(m["value"])["k"] for m in written)
    assert len({row["_pos"] for row in read}) == len(written)
    assert now == {"1/0": 700, "1/1": 300, "1/2": 50}


def test_what_comes_later_and_new_partitions_are_found(kafka: Brokers) -> None:
    kafka.tell("create", "grows", 2)
    kafka.produce("grows", [event(1, 1, 0)])
    stream, found = topic_stream(kafka, "grows"), inputs()
    found.lanes(stream, {})
    first = admit([Lane(stream, 0)], {}, found, max_rows=10).positions  # as if it had one partition then
    assert first == {"1/0": 1}
    lanes = found.lanes(stream, first)
    assert [lane.key for lane in lanes] == ["1/0", "1/1"]
    assert admit(lanes, first, found, max_rows=10).positions == {"1/0": 1, "1/1": 0}
    kafka.produce("grows", [event(2, 2, 1), event(3, 3, 0)])
    until_s = time.monotonic() + 120
    while (then := admit(found.lanes(stream, first), first, found, max_rows=10).positions) != {
        "1/0": 2,
        "1/1": 1,
    }:
        assert time.monotonic() < until_s, then
    assert [row["k"] for row in rows_of(found, lanes, first, then)] == [3, 2]
    assert found.is_read(stream, then)
    assert not found.is_read(stream, first)
    found.close()


def test_a_start_with_the_latest_and_a_bounded_run_end_where_the_topic_did(kafka: Brokers) -> None:
    kafka.tell("create", "latest", 1)
    kafka.produce("latest", [event(1, 1), event(2, 2)])
    stream = topic_stream(kafka, "latest")
    latest = Stream(1, "S", COLUMNS, "ts", 0, stream.source, start="latest")
    latest = resolve_source(latest, base=Path(), now_us=0)
    bounded = inputs(bounded=True)
    assert bounded.lanes(stream, {}) == [Lane(stream, 0)]
    kafka.produce("latest", [event(3, 3)])
    assert admit([Lane(stream, 0)], {}, bounded, max_rows=10).positions == {"1/0": 2}
    found = inputs()
    lanes = found.lanes(latest, {})
    assert admit(lanes, {}, found, max_rows=10).positions == {"1/0": 3}
    assert [row["k"] for row in rows_of(found, lanes, {}, {"1/0": 3})] == [3]
    bounded.close()
    found.close()


def test_keys_headers_and_tombstones(kafka: Brokers) -> None:
    kafka.tell("create", "headers", 1)
    sent = [
        event(1, 9, key=b"7", headers=[("trace", b"a"), ("trace", "ü".encode())]),
        {"key": b"7", "value": None, "partition": 0},
        event(2, 9),
    ]
    kafka.produce("headers", sent)
    columns = (*COLUMNS, Column("trace", "string"))
    source = KafkaSource(kafka.cluster, "headers", key="k", headers=(("trace", "trace"),))
    stream, found = Stream(1, "S", columns, "ts", 0, source), inputs()
    (lane,) = found.lanes(stream, {})
    then = admit([lane], {}, found, max_rows=10).positions
    rows = rows_of(found, [lane], {}, then)
    assert [(row["k"], row["trace"], row["_pos"]) for row in rows] == [(7, "ü", 0), (None, None, 2)]
    found.close()


BAD = (
    (b"{", "its value is not JSON"),
    (b"[1]", "its value is not a JSON object but [1]"),
    (b'{"k": 1}', 'column "ts": the event time is missing'),
    (b'{"ts": 1, "k": "x"}', 'column "k": "x" is not an integer of 64 bits'),
    (b"\xff", "its value is not JSON"),
    (b'{"ts": 999999999999999999, "k": 1}', "is not a time of the years 1 to 9999"),
)


def test_messages_that_are_no_events_stop_the_batch_or_are_kept_apart(kafka: Brokers, tmp_path: Path) -> None:
    kafka.tell("create", "bad", 1)
    kafka.produce("bad", [event(1, 1), *({"value": value, "partition": 0} for value, _ in BAD), event(2, 2)])
    stream = topic_stream(kafka, "bad")
    whole = TopicPartition(1, 0, None, 8, (TopicRange(0, 0, 8, True),), tmp_path)
    with pytest.raises(MessageRejected) as refused:
        read_topic(stream, whole, ["ts", "k"])
    assert 'message 1 of partition 0 of topic "bad" is not an event of stream "S"' in refused.value.primary
    assert not list(tmp_path.iterdir())
    kept = topic_stream(kafka, "bad", on_bad="dead-letter")
    for _ in range(2):  # a batch that is repeated writes the same file
        assert read_topic(kept, whole, ["k"]).column("k").to_pylist() == [1, 2]
        (path,) = tmp_path.iterdir()
        letters = [json.loads(line) for line in path.read_text().splitlines()]
        assert [letter["offset"] for letter in letters] == list(range(1, 7))
        for letter, (_, reason) in zip(letters, BAD, strict=True):
            assert reason in letter["reason"]
        assert letters[0]["value"] == "{"
        assert letters[4]["value"] == {"base64": "/w=="}
    assert path.name == "S-0-000000000000.jsonl"


def test_an_event_time_far_ahead_of_its_message_is_no_event(kafka: Brokers, tmp_path: Path) -> None:
    kafka.tell("create", "ahead", 1)
    sent = [event(t * 1_000_000, t, timestamp=100_000) for t in (100, 160, 161)]
    kafka.produce("ahead", sent)
    source = KafkaSource(kafka.cluster, "ahead", on_bad="dead-letter")
    stream = Stream(1, "S", COLUMNS, "ts", 0, source, max_ahead_us=60_000_000)
    whole = TopicPartition(1, 0, None, 3, (TopicRange(0, 0, 3, True),), tmp_path)
    assert read_topic(stream, whole, ["k"]).column("k").to_pylist() == [100, 160]


def test_messages_that_retention_took_are_told_and_make_a_batch_of_their_own(kafka: Brokers) -> None:
    kafka.tell("create", "lost", 1)
    kafka.produce("lost", [event(t, t) for t in range(10)])
    kafka.tell("drop", "lost", 0, 6)
    stream, found = topic_stream(kafka, "lost"), inputs()
    (lane,) = found.lanes(stream, {})
    # Of a partition that nothing was read of nothing is lost.
    then = admit([lane], {}, found, max_rows=10).positions
    while then["1/0"] < 10:
        then = admit([lane], then, found, max_rows=10).positions
    assert [row["k"] for row in rows_of(found, [lane], {}, then)] == [6, 7, 8, 9]
    lost = admit([lane], {"1/0": 2}, found, max_rows=10).positions
    assert lost == {"1/0": 6}
    with pytest.raises(MessagesLost) as gone:
        rows_of(found, [lane], {"1/0": 2}, lost)
    assert gone.value.primary == (
        'messages 2 to 5 of partition 0 of topic "lost" were deleted before stream "S" had read them'
    )
    assert admit([lane], lost, found, max_rows=10).positions == {"1/0": 10}

    def look_until_it_is_told() -> None:
        until_s = time.monotonic() + 120
        while time.monotonic() < until_s:
            found.lanes(stream, {"1/0": 50})

    with pytest.raises(MessagesLost, match="ends before message 50"):
        look_until_it_is_told()
    found.close()


def test_brokers_that_go_and_come_back_cost_nothing_but_time() -> None:
    with brokers() as kafka:
        kafka.tell("create", "down", 1)
        kafka.produce("down", [event(t, t) for t in range(10)])
        stream = topic_stream(kafka, "down")
        found, topics = inputs(), Topics(wait_s=1.0)
        assert topics.partitions(stream) == (0,)
        for broker in (1, 2, 3):
            kafka.tell("down", broker)
        with pytest.raises(KafkaDown) as down:
            topics.look(stream, {})
        assert down.value.stream_id == stream.id
        part = TopicPartition(1, 0, None, 10, (TopicRange(0, 0, 10, False),), None)
        with pytest.raises(KafkaDown, match="cannot be read"):
            read_topic(stream, part, ["k"], wait_s=1.0)
        assert WorkloadRows().sample(stream, ["k"]) is None
        for broker in (1, 2, 3):
            kafka.tell("up", broker)
        assert read_topic(stream, part, ["k"], wait_s=30.0).column("k").to_pylist() == list(range(10))
        assert topics.look(stream, {}) == [Lane(stream, 0)]
        assert [p.end for p in topics.pending(Lane(stream, 0), 0, 10)][-1] == 10
        sample = WorkloadRows().sample(stream, ["k"])
        assert sample is not None
        assert sample.table.num_rows == 10
        topics.close()
        found.close()


def test_a_topic_that_is_not_there_is_told_before_the_stream_is_registered(kafka: Brokers) -> None:
    kafka.tell("create", "there", 1)
    validate_source(topic_stream(kafka, "there"))
    with pytest.raises(SourceNotFound, match='topic "elsewhere" of stream "S" does not exist'):
        validate_source(topic_stream(kafka, "elsewhere"))
