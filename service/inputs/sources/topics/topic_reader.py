"""Reads topics in a worker: fixed ranges of messages, which always give the same messages or an error.

A message that is not an event of the stream stops the batch. With ``on_bad: dead-letter``, such messages are
written to a file named after the range instead; a repeated batch overwrites the file:

    dead_letters/A-3-000000000120.jsonl     messages of partition 3 from offset 120 on that do not fit A
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from catalog.columns.arrow_types import POSITION_COLUMN
from catalog.values.stream import KafkaCluster, KafkaSource, Stream
from operators.storage.folder import Folder, directory_here, publish
from service.errors import KafkaDown, MessageRejected, MessagesLost
from service.inputs.messages.messages import Unfit, headers_of, messages_to_table
from service.inputs.partitions import TopicPartition, TopicRange
from service.kafka.kafka_client import REFUSALS, new_consumer

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

log = logging.getLogger(__name__)

#: ``_pos`` of a message is ``partition << OFFSET_BITS | offset``.
OFFSET_BITS: Final = 48
#: Seconds that a reader waits for the next message, even if brokers are down in the meantime.
WAIT_S: Final = 60.0

_MESSAGES_AT_ONCE: Final = 10_000
#: Error codes of the library (rdkafka.h), copied so that the library is imported only where it is used.
PARTITION_EOF: Final = -191
OFFSET_LOST: Final = -140
#: Permanent errors: authentication, TLS, authorization of topic, group and cluster.
FATAL: Final = REFUSALS | {29, 30, 31, 58}


def read_topic(
    stream: Stream, partition: TopicPartition, names: Sequence[str], *, wait_s: float = WAIT_S
) -> pa.Table:
    """Return the events of a partition, with ``_pos``.

    Args:
        stream: Stream with a ``kafka`` source.
        partition: Messages to read.
        names: Columns to return.
        wait_s: Seconds to wait for the next message.

    Raises:
        MessagesLost: The topic no longer has the messages.
        MessageRejected: A message is not an event, and the stream refuses such messages.
        KafkaDown: The brokers do not answer.
    """
    source = stream.source
    assert isinstance(source, KafkaSource)
    messages = read_messages(stream, partition.ranges, wait_s=wait_s)
    table, indexes, unfit = messages_to_table(stream, source, messages)
    if unfit and source.on_bad == "reject":
        raise _rejected(stream, source, messages, unfit)
    if unfit and partition.dead_letters is not None:
        _write_dead_letters(partition.dead_letters, stream, source, partition.ranges, messages, unfit)
    places = [(int(m.partition() or 0) << OFFSET_BITS) + int(m.offset() or 0) for m in messages]
    positions = np.array(places, np.int64)[np.array(indexes, np.int64)]
    return table.select(list(names)).append_column(POSITION_COLUMN, pa.array(positions))


def read_messages(stream: Stream, ranges: Sequence[TopicRange], *, wait_s: float = WAIT_S) -> list[Message]:
    """Return the messages of one range per partition, by partition and offset; raises as `read_topic`."""
    from confluent_kafka import TopicPartition as Assigned  # an extra of the package

    source = stream.source
    assert isinstance(source, KafkaSource)
    consumer = _consumer(source.cluster)
    starts = {r.partition: _start(consumer, stream, source, r, wait_s) for r in ranges}
    left = {r.partition: r.end for r in ranges if starts[r.partition] < r.end}
    found: dict[int, list[Message]] = {partition: [] for partition in left}
    consumer.assign([Assigned(source.topic, p, starts[p]) for p in left])
    try:
        until_s, said = time.monotonic() + wait_s, "nothing"
        while left:
            taken = consumer.consume(_wanted(found, starts, left), 0.1)
            for message in taken:
                _take(consumer, stream, source, message, found, left, starts)
                said = said if message.error() is None else str(message.error())
            if any(message.error() is None for message in taken):
                until_s = time.monotonic() + wait_s
            elif left and time.monotonic() > until_s:
                raise KafkaDown(
                    f'messages of stream "{stream.name}" cannot be read from topic "{source.topic}"',
                    detail=f"No message of partitions {', '.join(map(str, sorted(left)))} arrived within "
                    f"{wait_s:g} s. The client says: {said}.",
                    hint=f"Check the brokers, {source.cluster.bootstrap}; the batch is repeated.",
                    stream_id=stream.id,
                )
    except BaseException:
        _consumer.cache_clear()  # the next attempt begins with new connections
        raise
    finally:
        consumer.unassign()
    return [message for partition in sorted(found) for message in found[partition]]


@lru_cache(maxsize=8)
def _consumer(cluster: KafkaCluster) -> Consumer:
    """Return this process's consumer: a new connection for each task would take longer than reading."""
    return new_consumer(cluster, {"queued.max.messages.kbytes": 65536, "fetch.wait.max.ms": 10})


def _start(consumer: Consumer, stream: Stream, source: KafkaSource, what: TopicRange, wait_s: float) -> int:
    """Return the first offset to read; a first read skips offsets before the partition's oldest message."""
    if not what.begins:
        return what.start
    oldest, _ = watermarks(consumer, stream, source, what.partition, wait_s)
    return max(what.start, oldest)


def watermarks(
    consumer: Consumer, stream: Stream, source: KafkaSource, partition: int, wait_s: float
) -> tuple[int, int]:
    """Return the offset of a partition's oldest message, and the offset that its next message will get.

    Raises:
        KafkaDown: The brokers do not answer.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka import TopicPartition as Assigned

    try:
        found = consumer.get_watermark_offsets(Assigned(source.topic, partition), timeout=wait_s)
    except KafkaException as error:
        raise kafka_down(stream, source, f"partition {partition}: {error.args[0]}") from error
    if found is None:
        raise kafka_down(stream, source, f"partition {partition}: no answer within {wait_s:g} s")
    return found


def kafka_down(stream: Stream, source: KafkaSource, detail: str) -> KafkaDown:
    """Return the error for a stream's topic that cannot be used."""
    return KafkaDown(
        f'topic "{source.topic}" of stream "{stream.name}" cannot be read',
        detail=f"The client says: {detail}.",
        hint=f"Check the brokers, {source.cluster.bootstrap}, and the permissions of this client.",
        stream_id=stream.id,
    )


def _wanted(found: dict[int, list[Message]], starts: dict[int, int], left: dict[int, int]) -> int:
    """Return how many messages to wait for, no more than can still arrive."""
    ahead = sum(
        end - ((found[p][-1].offset() or 0) + 1 if found[p] else starts[p]) for p, end in left.items()
    )
    return min(max(ahead, 1), _MESSAGES_AT_ONCE)


def _take(
    consumer: Consumer,
    stream: Stream,
    source: KafkaSource,
    message: Message,
    found: dict[int, list[Message]],
    left: dict[int, int],
    starts: dict[int, int],
) -> None:
    """Add a message to its partition's list; remove a partition from ``left`` once its range is read."""
    partition, offset = message.partition() or 0, message.offset() or 0
    error = message.error()
    if error is None:
        if partition in left:
            if offset < left[partition]:
                found[partition].append(message)
            if offset + 1 >= left[partition]:
                del left[partition]
    elif error.code() == PARTITION_EOF:
        # After the last message there can be offsets without a message: markers of transactions.
        if partition in left and offset >= left[partition]:
            del left[partition]
    elif error.code() == OFFSET_LOST:
        raise messages_lost(consumer, stream, source, partition, starts[partition], left.get(partition))
    elif error.code() in FATAL:
        raise kafka_down(stream, source, error.str())
    else:
        log.debug("reading continues after an error: %s", error, extra={"topic": source.topic})


def messages_lost(
    consumer: Consumer, stream: Stream, source: KafkaSource, partition: int, start: int, end: int | None
) -> MessagesLost:
    """Return the error that names the lost messages."""
    oldest, following = watermarks(consumer, stream, source, partition, 10.0)
    last = (oldest if end is None else min(end, oldest)) - 1
    there = (
        f"The partition has the messages {oldest} to {following - 1}"
        if oldest < following
        else "The partition has no messages"
    )
    if following < start:
        return MessagesLost(
            f'partition {partition} of topic "{source.topic}" ends before message {start}, '
            f'which stream "{stream.name}" would read next',
            detail=f"{there}, so the topic was deleted and created again.",
            hint="Remove the stream and register it again under another name.",
        )
    return MessagesLost(
        f"messages {start} to {max(last, start)} of partition {partition} "
        f'of topic "{source.topic}" were deleted before stream "{stream.name}" had read them',
        detail=f"{there}: the topic's retention has deleted older messages.",
        hint="Skip the batch to continue with the oldest message, and make the topic's retention longer.",
    )


def _rejected(
    stream: Stream, source: KafkaSource, messages: Sequence[Message], unfit: Sequence[Unfit]
) -> MessageRejected:
    first = messages[unfit[0].index]
    return MessageRejected(
        f"message {first.offset()} of partition {first.partition()} "
        f'of topic "{source.topic}" is not an event of stream "{stream.name}": {unfit[0].reason}',
        detail=f"Of the {len(messages)} messages that the task reads, {len(unfit) - 1} more are not events."
        if len(unfit) > 1
        else None,
        hint='Skip the batch, or register the stream with "on_bad": "dead-letter", which writes such '
        "messages to a file.",
    )


def _write_dead_letters(
    folder: Folder,
    stream: Stream,
    source: KafkaSource,
    ranges: Sequence[TopicRange],
    messages: Sequence[Message],
    unfit: Sequence[Unfit],
) -> None:
    directory = directory_here(folder)
    directory.mkdir(parents=True, exist_ok=True)
    starts = {r.partition: r.start for r in ranges}
    for partition, of_partition in groupby(unfit, lambda found: messages[found.index].partition() or 0):
        path = directory / f"{stream.name}-{partition}-{starts[partition]:012d}.jsonl"
        part = path.with_suffix(f".{os.getpid()}.part")
        letters = [_letter(source, messages[found.index], found.reason) for found in of_partition]
        part.write_text("".join(json.dumps(letter) + "\n" for letter in letters), encoding="utf-8")
        part.replace(path)
        publish(folder, [path.name])
        log.warning(
            "messages are not events and were written to a file",
            extra={"stream": stream.name, "partition": partition, "rows": len(letters), "path": str(path)},
        )


def _letter(source: KafkaSource, message: Message, reason: str) -> dict[str, Any]:
    kind, stamp_ms = message.timestamp()
    return {
        "topic": source.topic,
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": stamp_ms if kind else None,
        "reason": reason,
        "key": _bytes(message.key()),
        "headers": [[name, _bytes(value)] for name, value in headers_of(message)],
        "value": _bytes(message.value()),
    }


def _bytes(value: bytes | str | None) -> str | dict[str, str] | None:
    """Return bytes as text, or as base64 if they are not UTF-8."""
    if value is None or isinstance(value, str):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}
