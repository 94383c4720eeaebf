"""Topics in Spark's source process: their partitions, and pieces of their messages.

    partition 0   ....|-----|---|-----|-->       pieces: at most PIECE_MESSAGES messages, whose event times
    partition 1   ..|--|------|---|              lie at most the stream's lateness apart

The partitions of a topic are aligned by event time, like streams. No row may be late because another
partition was read first. Of the next pieces of all partitions, the batch takes the piece whose newest row is
the oldest. The newest row of each other piece is newer, and a piece spans at most the lateness, so none of
the other rows becomes late. A row is late only if it is late within its own partition.

This order is ensured only for messages that exist when the service looks for them. Messages may be written
while partitions are examined, even to a partition whose end was already reached. So a search for messages has
two steps: first the settled messages, then the ends of all partitions, including new ones:

    partition 0   ....|-----|---]            )       ] settled: written before the ends were requested
    partition 1   ..|--|]             --|    )       ) the end in the answer; later messages must wait

Every message written before a settled message lies before these ends, so it is taken in the order of event
times. Messages between ] and ) are fresh: a batch takes them only while newer settled messages are still to
be taken. So a row is late only if a row that is newer by more than the lateness was written earlier, in any
partition.

Messages are read a first time for their event times, before a batch may take them; only a few numbers per
piece are kept. The tasks read the messages again, for their rows.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from catalog.values.stream import KafkaSource, Stream
from service.errors import KafkaDown, SourceNotFound
from service.inputs.messages.messages import message_times
from service.inputs.partitions import Lane, Piece, lanes_named
from service.inputs.sources.topics.topic_reader import (
    FATAL,
    OFFSET_LOST,
    PARTITION_EOF,
    kafka_down,
    messages_lost,
    watermarks,
)
from service.kafka.kafka_client import new_consumer

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

log = logging.getLogger(__name__)

PIECE_MESSAGES: Final = 1000
#: Seconds between two searches for new partitions.
LOOK_S: Final = 5.0
#: Timeout of a request to brokers, in seconds.
WAIT_S: Final = 10.0
_MESSAGES_AT_ONCE: Final = 10_000


@dataclass(slots=True)
class _Run:
    """Consecutive messages of a partition that form a piece; a run grows until the next run begins."""

    start: int
    end: int
    rows: int = 0
    t_min_us: int | None = None
    t_max_us: int | None = None
    lost: bool = False
    #: Whether a batch may have taken the run, so that it must not grow any more.
    given: bool = False

    def takes(self, time_us: int | None, spread_us: int) -> bool:
        """Return whether a message of this event time can be added within the limits of a piece."""
        if self.lost or self.given or self.rows >= PIECE_MESSAGES:
            return False
        if time_us is None or self.t_min_us is None or self.t_max_us is None:
            return True
        return max(self.t_max_us, time_us) - min(self.t_min_us, time_us) <= spread_us

    def add(self, offset: int, time_us: int | None) -> None:
        """Add a message to the run."""
        self.end = offset + 1
        self.rows += 1
        if time_us is not None:
            self.t_min_us = time_us if self.t_min_us is None else min(self.t_min_us, time_us)
            self.t_max_us = time_us if self.t_max_us is None else max(self.t_max_us, time_us)


@dataclass(slots=True)
class _PartitionIndex:
    """Pieces of a partition after the position of the last batch.

    Attributes:
        next: Offset up to which messages were read for their event time.
        settled: Offset below which every message was written before the ends were requested.
        end: End of the partition when the ends were requested.
        runs: The pieces; none has messages on both sides of ``settled`` or ``end``.
    """

    next: int
    settled: int = 0
    end: int = 0
    runs: deque[_Run] = field(default_factory=deque)

    def run_up_to(self, end: int, time_us: int | None, spread_us: int) -> _Run:
        """Return the run for messages up to an offset; begin a new run if the last run cannot take them."""
        last = self.runs[-1] if self.runs else None
        parts = last is not None and any(last.end <= edge < end for edge in (self.settled, self.end))
        if last is None or parts or not last.takes(time_us, spread_us):
            last = _Run(self.next, self.next)
            self.runs.append(last)
        return last


@dataclass(slots=True)
class _Topic:
    """The topic of a stream: its consumer, and the state of the search for messages."""

    stream: Stream
    source: KafkaSource
    consumer: Consumer
    #: Errors of the last failed connection; empty if no connection has failed.
    refusals: list[str]
    partitions: tuple[int, ...] = ()
    #: Whether the ends of the partitions have been requested.
    ends_known: bool = False
    looked_s: float | None = None
    #: Offsets at which a bounded run ends, by partition; None for an unbounded run.
    until: dict[int, int] | None = None
    indexes: dict[int, _PartitionIndex] = field(default_factory=dict)


class Topics:
    """The topics of all ``kafka`` streams; not thread-safe.

    Args:
        wait_s: Timeout of a request to brokers, in seconds.
        clock_s: Monotonic clock.
    """

    def __init__(self, *, wait_s: float = WAIT_S, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._wait_s = wait_s
        self._clock_s = clock_s
        self._topics: dict[int, _Topic] = {}

    def look(self, stream: Stream, offset: Mapping[str, int]) -> list[Lane]:
        """Look for messages after an offset; until the next call, `pending` returns only messages found now.

        Args:
            stream: Stream with a ``kafka`` source.
            offset: Positions by key of lane.

        Returns:
            The lanes of the partitions that exist or that the offset names.

        Raises:
            KafkaDown: The brokers do not answer.
            MessagesLost: A position is beyond the topic's end.
            SourceNotFound: There is no such topic.
        """
        topic = self._topic(stream)
        self.partitions(stream)
        lanes = self._indexed(topic, offset)
        self._take_what_came(topic, 0.0)
        indexes = topic.indexes.values()
        if topic.until is not None:
            for partition, index in topic.indexes.items():
                index.settled = index.end = topic.until.get(partition, 0)
            return lanes
        if not topic.ends_known:
            self._ask_for_ends(topic)
        for index in indexes:
            index.settled = max(index.next, index.end)
        if any(index.runs or index.next < index.end for index in indexes):
            topic.looked_s = None
            self.partitions(stream)
            lanes = self._indexed(topic, offset)
            self._ask_for_ends(topic)
        return lanes

    def partitions(self, stream: Stream) -> tuple[int, ...]:
        """Return the partitions of a stream's topic; the answer may be ``LOOK_S`` seconds old.

        Raises:
            KafkaDown: The brokers do not answer.
            SourceNotFound: There is no such topic.
        """
        topic = self._topic(stream)
        now_s = self._clock_s()
        if topic.looked_s is None or now_s - topic.looked_s >= LOOK_S:
            topic.partitions = self._found_partitions(topic)
            topic.looked_s = now_s
        return topic.partitions

    def ends(self, stream: Stream) -> dict[int, tuple[int, int]]:
        """Return the offsets of the oldest and the next message, by partition; raises as `partitions`."""
        topic = self._topic(stream)
        return {
            partition: watermarks(topic.consumer, stream, topic.source, partition, self._wait_s)
            for partition in self.partitions(stream)
        }

    def hold(self, stream: Stream) -> None:
        """Fix the end of a stream: a bounded run ends after the messages that exist now."""
        topic = self._topic(stream)
        if topic.until is None:
            topic.until = {partition: following for partition, (_, following) in self.ends(stream).items()}

    def pending(self, lane: Lane, position: int, limit: int) -> tuple[Piece, ...]:
        """Return up to ``limit`` pieces of a partition, from a position to the end that was found last.

        Raises:
            KafkaDown: There are messages, but the brokers do not deliver them.
            MessagesLost: The position is beyond the topic's end.
        """
        topic, partition = self._topic(lane.stream), lane.partition or 0
        index = self._index(topic, lane, position)
        until_s = self._clock_s() + self._wait_s
        while not index.runs and index.next < index.end:
            self._take_what_came(topic, 0.05)
            if self._clock_s() > until_s and not index.runs and index.next < index.end:
                raise kafka_down(
                    lane.stream,
                    topic.source,
                    f"partition {partition} delivered nothing within {self._wait_s:g} s",
                )
        pieces = []
        for run in list(index.runs)[:limit]:
            if run.start >= index.end:
                break
            run.given = True
            count = min(run.end, index.end) - run.start
            times, is_fresh = (run.t_min_us, run.t_max_us), run.end > index.settled
            pieces.append(Piece(lane.stream.id, run.start, run.rows, *times, count, run.lost, is_fresh))
        return tuple(pieces)

    def forget(self, stream: Stream) -> None:
        """Close a stream's consumer and discard its indexes; the next look begins anew."""
        topic = self._topics.pop(stream.id, None)
        if topic is not None:
            topic.consumer.close()

    def close(self) -> None:
        """Close all consumers."""
        for topic in list(self._topics.values()):
            self.forget(topic.stream)

    def _topic(self, stream: Stream) -> _Topic:
        source = stream.source
        assert isinstance(source, KafkaSource)
        if stream.id not in self._topics:
            options, refusals = {"queued.max.messages.kbytes": 16384, "fetch.wait.max.ms": 50}, list[str]()
            consumer = new_consumer(source.cluster, options, refusals)
            self._topics[stream.id] = _Topic(stream, source, consumer, refusals)
        return self._topics[stream.id]

    def _found_partitions(self, topic: _Topic) -> tuple[int, ...]:
        from confluent_kafka import KafkaException  # an extra of the package

        name = topic.source.topic
        try:
            found = topic.consumer.list_topics(name, timeout=self._wait_s).topics[name]
        except KafkaException as error:
            raise self._down(topic, str(error.args[0])) from error
        if found.error is not None and found.error.code() == 3:
            raise SourceNotFound(
                f'topic "{name}" of stream "{topic.stream.name}" does not exist',
                hint=f"Create the topic, or look its name up at {topic.source.cluster.bootstrap}.",
                path=("source", "topic"),
            )
        if found.error is not None:
            raise kafka_down(topic.stream, topic.source, found.error.str())
        return tuple(sorted({*found.partitions, *topic.partitions}))

    def _down(self, topic: _Topic, said: str) -> KafkaDown:
        """Return the error for a failed request, with the cause if the client knows it."""
        topic.refusals.clear()
        self._take_what_came(topic, 0.0)  # the client reports its errors while messages are consumed
        return kafka_down(topic.stream, topic.source, "; ".join([*topic.refusals, said]))

    def _ask_for_ends(self, topic: _Topic) -> None:
        """Request the current ends of the partitions that have an index: one request per broker."""
        from confluent_kafka import OFFSET_END, KafkaException  # an extra of the package
        from confluent_kafka import TopicPartition as Assigned

        asked = [Assigned(topic.source.topic, partition, OFFSET_END) for partition in topic.indexes]
        try:
            answers = topic.consumer.offsets_for_times(asked, timeout=self._wait_s) if asked else []
        except KafkaException as error:
            raise self._down(topic, str(error.args[0])) from error
        for answer in answers:
            if answer.error is not None or answer.offset < 0:
                raise kafka_down(topic.stream, topic.source, f"partition {answer.partition}: {answer.error}")
            topic.indexes[answer.partition].end = answer.offset
        topic.ends_known = True

    def _indexed(self, topic: _Topic, offset: Mapping[str, int]) -> list[Lane]:
        """Return the lanes of a topic; each lane has an index that begins at the lane's position."""
        stream = topic.stream
        there = {Lane(stream, partition) for partition in topic.partitions}
        lanes = sorted(there.union(lanes_named([stream], offset)), key=lambda lane: lane.partition or 0)
        for lane in lanes:
            self._index(topic, lane, offset.get(lane.key, lane.begin))
        return lanes

    def _index(self, topic: _Topic, lane: Lane, position: int) -> _PartitionIndex:
        """Return the index of a partition, without the runs before a position."""
        partition = lane.partition or 0
        index = topic.indexes.get(partition)
        if index is not None:
            while index.runs and index.runs[0].end <= position:
                index.runs.popleft()
            first = index.runs[0].start if index.runs else index.next
            if first == position:
                return index
        before = index or _PartitionIndex(position)
        index = topic.indexes[partition] = _PartitionIndex(position, before.settled, before.end)
        self._seek(topic, partition, position)
        return index

    def _seek(self, topic: _Topic, partition: int, offset: int) -> None:
        from confluent_kafka import TopicPartition as Assigned  # an extra of the package

        if any(p.partition == partition for p in topic.consumer.assignment()):
            topic.consumer.incremental_unassign([Assigned(topic.source.topic, partition)])
        topic.consumer.incremental_assign([Assigned(topic.source.topic, partition, offset)])

    def _take_what_came(self, topic: _Topic, wait_s: float) -> None:
        """Consume the messages that have arrived; if there are none, wait up to ``wait_s`` for the first."""
        taken = topic.consumer.consume(1, wait_s) if wait_s else []
        taken += topic.consumer.consume(_MESSAGES_AT_ONCE, 0)
        messages: list[Message] = []
        for message in taken:
            error = message.error()
            if error is None:
                messages.append(message)
                continue
            self._add(topic, messages)
            messages = []
            partition, offset = message.partition() or 0, message.offset() or 0
            index = topic.indexes.get(partition)
            if error.code() == PARTITION_EOF and index is not None:
                if offset > index.next:  # markers of transactions
                    index.run_up_to(offset, None, 0).end = index.next = offset
            elif error.code() == OFFSET_LOST and index is not None:
                self._lost(topic, partition, index)
            elif error.code() in FATAL:
                raise kafka_down(topic.stream, topic.source, error.str())
        self._add(topic, messages)

    def _add(self, topic: _Topic, messages: Sequence[Message]) -> None:
        if not messages:
            return
        try:
            times = message_times(topic.stream, topic.source, messages)
        except KafkaDown:
            self.forget(topic.stream)  # so that the next look requests the consumed messages again
            raise
        for message, time_us in zip(messages, times, strict=True):
            index = topic.indexes[message.partition() or 0]
            offset = message.offset() or 0
            if offset < index.next:
                continue  # consumed before the last seek
            index.run_up_to(offset + 1, time_us, topic.stream.lateness_us).add(offset, time_us)
            index.next = offset + 1

    def _lost(self, topic: _Topic, partition: int, index: _PartitionIndex) -> None:
        """Continue with the oldest message; if the stream has read messages before, mark the gap as lost."""
        oldest, _ = watermarks(topic.consumer, topic.stream, topic.source, partition, self._wait_s)
        if oldest <= index.next:
            raise messages_lost(topic.consumer, topic.stream, topic.source, partition, index.next, None)
        begins = index.next == Lane(topic.stream, partition).begin
        index.runs.append(_Run(index.next, oldest, lost=not begins))
        index.next = oldest
        self._seek(topic, partition, oldest)
