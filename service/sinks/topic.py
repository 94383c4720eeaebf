"""Results in a topic of Apache Kafka, exactly once: the results of a batch are one transaction.

    mark in the catalog   ends of the topic          before a batch is sent for the first time
    transaction           one message per result     readers of committed messages see all or none
    catalog               the batch is recorded      afterwards; a crash in between repeats the batch

Before a batch with a mark is sent again, the topic is read from the mark on: messages with the batch's
headers exist if and only if the batch's transaction was committed. The transactional id belongs to the
series, so Kafka fences the producer of a replaced service, which cannot commit any more.

Headers of a message: ``sluice-id`` (catalog, series, batch and number in the batch; unique among
Sluice's messages), ``sluice-query`` and ``sluice-batch``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from catalog.store.store import Store
from catalog.values.query import PUNCTUATION_OUTPUT
from catalog.values.sink import SinkRecord, TopicSink
from service.errors import SinkFailed
from service.kafka.kafka_client import new_consumer, new_producer
from service.results.result_formats import result_line, rows_for_json

if TYPE_CHECKING:
    from confluent_kafka import Producer

#: Maximum seconds to wait for an answer of the brokers.
WAIT_S: Final = 10.0
#: Maximum seconds for sending all messages of a batch.
TRANSACTION_S: Final = 300
_PARTITION_EOF: Final = -191
_SETTING: Final = "topic_marks"
#: Maximum number of stored marks; older marks belong to removed sinks.
_KEPT: Final = 1000


def send_batch(
    store: Store,
    catalog_id: str,
    record: SinkRecord,
    sink: TopicSink,
    batch: int,
    parts: Iterator[pa.RecordBatch],
) -> None:
    """Send the results of a batch to a topic, unless the topic already has them.

    Args:
        store: Catalog, which stores the mark.
        catalog_id: Identity of the catalog.
        record: The sink, and its query.
        sink: The sink.
        batch: Number of the batch.
        parts: Results of the batch, at least one part.

    Raises:
        SinkFailed: The brokers did not accept the results, and readers of committed messages see none of
            them.
    """
    from confluent_kafka import KafkaException  # an extra of the package

    name = f"{catalog_id}-{record.series}"
    options: dict[str, str | int | bool] = {
        "transactional.id": f"sluice-{name}",
        "transaction.timeout.ms": TRANSACTION_S * 1000,
    }
    try:
        producer = new_producer(sink.cluster, options | {"linger.ms": 5})
        # First end an open transaction of an earlier attempt. After that, the messages of that attempt are
        # either committed or never will be.
        producer.init_transactions(WAIT_S)
        if not _is_there(store, record, sink, batch, f"{name}-{batch}-".encode()):
            _transaction(producer, name, record, sink, batch, parts)
    except KafkaException as error:
        raise SinkFailed(f"Kafka: {error.args[0].str()}") from error


def _transaction(
    producer: Producer,
    name: str,
    record: SinkRecord,
    sink: TopicSink,
    batch: int,
    parts: Iterator[pa.RecordBatch],
) -> None:
    producer.begin_transaction()
    try:
        sent = 0
        for part in parts:
            for row in rows_for_json(pa.Table.from_batches([part])):
                headers: list[tuple[str, str | bytes | None]] = [
                    ("sluice-id", f"{name}-{batch}-{sent}"),
                    ("sluice-query", record.query),
                    ("sluice-batch", str(batch)),
                ]
                _produce(producer, sink.topic, result_line(row).encode(), _key(sink, row), headers)
                sent += 1
        producer.commit_transaction(TRANSACTION_S)
    except BaseException:
        # Abort even if reading the results failed: then readers never see the messages already sent.
        producer.abort_transaction(WAIT_S)
        raise


def _produce(producer: Any, topic: str, value: bytes, key: bytes | None, headers: Any) -> None:
    """Send a message; wait while the library's queue is full."""
    while True:
        try:
            producer.produce(topic, value, key, headers=headers)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _key(sink: TopicSink, row: Mapping[str, Any]) -> bytes | None:
    if sink.key is None:
        return None
    if sink.key not in row:
        raise SinkFailed(f'the results have no column "{sink.key}" for the key of messages')
    value, pattern = row[sink.key], row.get(PUNCTUATION_OUTPUT)
    if pattern is not None:
        # Use the finished key, so that the punctuation follows this key's results in their partition.
        value = json.loads(pattern).get(sink.key)
    return None if value is None else (value if isinstance(value, str) else json.dumps(value)).encode()


def _is_there(store: Store, record: SinkRecord, sink: TopicSink, batch: int, prefix: bytes) -> bool:
    """Return whether the topic has a batch; before the first attempt to send the batch, store its mark."""
    mark, ends = _marks(store).get(str(record.id)), _ends(sink)
    if mark is not None and mark["batch"] == batch:
        return _found(sink, {int(p): int(offset) for p, offset in mark["ends"].items()}, ends, prefix)
    with store.transaction():
        marks = _marks(store)
        marks.pop(str(record.id), None)
        marks[str(record.id)] = {"batch": batch, "ends": {str(p): end for p, (_, end) in ends.items()}}
        store.settings.set(_SETTING, dict(list(marks.items())[-_KEPT:]))
    return False


def _marks(store: Store) -> dict[str, Any]:
    known = store.settings.get(_SETTING)
    return dict(known) if isinstance(known, dict) else {}


def _ends(sink: TopicSink) -> dict[int, tuple[int, int]]:
    """Return (oldest, next) message offsets by partition, including messages of open transactions."""
    from confluent_kafka import TopicPartition

    consumer = new_consumer(sink.cluster, {"isolation.level": "read_uncommitted"})
    try:
        topic = consumer.list_topics(sink.topic, timeout=WAIT_S).topics[sink.topic]
        if topic.error is not None:
            raise SinkFailed(f'topic "{sink.topic}": {topic.error.str()}')
        found = {}
        for partition in topic.partitions:
            ends = consumer.get_watermark_offsets(TopicPartition(sink.topic, partition), timeout=WAIT_S)
            if ends is None:
                raise SinkFailed(f'partition {partition} of topic "{sink.topic}" did not answer')
            found[partition] = ends
        return found
    finally:
        consumer.close()


def _found(
    sink: TopicSink, mark: Mapping[int, int], ends: Mapping[int, tuple[int, int]], prefix: bytes
) -> bool:
    """Return whether the topic, from a mark on, has a committed message with a batch's id.

    An open transaction of another producer hides all later messages, so the function waits for its end.
    """
    from confluent_kafka import TopicPartition

    left = {p: end for p, (_, end) in ends.items() if mark.get(p, 0) < end}
    starts = [TopicPartition(sink.topic, p, max(ends[p][0], mark.get(p, 0))) for p in left]
    consumer = new_consumer(sink.cluster, {})
    try:
        consumer.assign(starts)
        until_s = time.monotonic() + WAIT_S
        while left:
            for message in consumer.consume(1000, 0.1):
                partition, offset, error = message.partition() or 0, message.offset() or 0, message.error()
                if error is None:
                    until_s = time.monotonic() + WAIT_S
                    headers: Any = message.headers() or []  # the stub's type includes producers' headers
                    if any(header == "sluice-id" and value.startswith(prefix) for header, value in headers):
                        return True
                elif error.code() == _PARTITION_EOF and offset >= left.get(partition, 0):
                    left.pop(partition, None)
            if time.monotonic() > until_s:
                raise SinkFailed(f'topic "{sink.topic}" cannot be read to see whether it has the batch')
        return False
    finally:
        consumer.close()
