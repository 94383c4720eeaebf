"""Partitions of a topic are never looked at in one moment, and messages come meanwhile.

The tests write messages at every step of the admission of a batch. Event times ascend in the order in which
messages are written, whatever the partition, so with a lateness of zero none may be late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import MappingProxyType

import pytest
from confluent_kafka import Producer

from catalog.values.stream import Stream
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane, Piece
from service.inputs.sources.topics.topics import Topics, _Topic
from service.job.admission.admission import admit
from tests.service.kafka.brokers import Brokers
from tests.service.kafka.test_topics import event, micros, rows_of, topic_stream

WAIT_S = 120


class Disturbed(Inputs):
    """Inputs while others write."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__(None, None)  # type: ignore[arg-type]  # topics need no catalog
        self.meanwhile = meanwhile

    def pending(self, lane: Lane, position: int, limit: int) -> tuple[Piece, ...]:
        self.meanwhile()
        found = super().pending(lane, position, limit)
        self.meanwhile()
        return found


class Writer:
    """A writer of messages with ascending event times."""

    def __init__(self, kafka: Brokers, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0, "log_level": 0})
        self._topic = topic
        self.written = 0

    def write(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._producer.produce(self._topic, **event(self.written, self.written, partition))
            assert self._producer.flush(WAIT_S) == 0  # one at a time: brokers take them in this order
            self.written += 1


def read_all(
    stream: Stream, found: Inputs, writer: Writer, last: int, now: Mapping[str, int] = MappingProxyType({})
) -> list[int]:
    """Admit batches until everything is read; assert that no row is late; return their keys."""
    now, newest_us, keys = dict(now), -1, list[int]()
    until_s = time.monotonic() + WAIT_S
    while writer.written < last or len(keys) < last:
        assert time.monotonic() < until_s, f"{len(keys)} of {writer.written} messages were read"
        lanes = found.lanes(stream, now)
        then = admit(lanes, now, found, max_rows=1000).positions
        times = []
        for row in rows_of(found, lanes, now, then):
            times.append(micros(row["ts"]))
            keys.append(row["k"])
        assert all(t >= newest_us for t in times), f"{min(times)} is late, {newest_us} was read before"
        newest_us = max(newest_us, *times) if times else newest_us
        now = now | then
    return sorted(keys)


@pytest.mark.parametrize("written_before", [False, True])
def test_a_partition_that_was_empty_when_it_was_looked_at_has_no_late_rows(
    kafka: Brokers, written_before: bool
) -> None:
    topic = f"empty-{written_before}"
    kafka.tell("create", topic, 2)
    stream, writer = topic_stream(kafka, topic, lateness_us=0), Writer(kafka, topic)
    looks = 0

    def meanwhile() -> None:
        nonlocal looks
        looks += 1
        if looks == 2:  # the first partition was looked at, the second one was not
            writer.write([0, 1] * 5)

    if written_before:
        writer.write([1])
    found = Disturbed(meanwhile)
    last = 11 if written_before else 10
    assert read_all(stream, found, writer, last) == list(range(last))
    found.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_row_is_late_whenever_messages_are_written(
    kafka: Brokers, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = Random(seed)
    topic, last = f"whenever-{seed}", 150
    kafka.tell("create", topic, 3)
    stream, writer = topic_stream(kafka, topic, lateness_us=0), Writer(kafka, topic)

    def meanwhile() -> None:
        if writer.written < last and rng.random() < 0.4:
            more = min(rng.randrange(1, 5), last - writer.written)
            writer.write([rng.randrange(3) for _ in range(more)])

    ask = Topics._ask_for_ends

    def ask_at_work(topics: Topics, of: _Topic) -> None:
        meanwhile()
        ask(topics, of)
        meanwhile()

    monkeypatch.setattr(Topics, "_ask_for_ends", ask_at_work)
    writer.write([0, 1, 2])
    found = Disturbed(meanwhile)
    assert read_all(stream, found, writer, last) == list(range(last)), f"seed {seed}"
    found.close()


def test_a_partition_that_is_new_has_no_late_rows(kafka: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka.tell("create", "more", 2)
    stream, writer = topic_stream(kafka, "more", lateness_us=0), Writer(kafka, "more")
    all_of, there = Topics._found_partitions, 1
    # The brokers of the tests cannot add a partition, so the second one is kept from the answer at first.
    monkeypatch.setattr(Topics, "_found_partitions", lambda *given: all_of(*given)[:there])
    writer.write([0, 0])
    found = Disturbed(lambda: None)
    lanes = found.lanes(stream, {})
    now = admit(lanes, {}, found, max_rows=1000).positions
    assert now == {"1/0": 2}
    there = 2
    writer.write([1, 0, 1, 0])
    assert read_all(stream, found, writer, 4, now)[-1] == 5
    found.close()
