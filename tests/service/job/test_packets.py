"""Payloads come out of their packets as they went in, in whatever order these arrive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import BrokenPayload
from service.job.packets import BYTES_AT_ONCE, PACKET_BYTES, joined, packets


def by_bucket(batches: Iterable[pa.RecordBatch]) -> dict[int, list[bytes]]:
    """Return the packets of each bucket."""
    found: dict[int, list[bytes]] = defaultdict(list)
    for batch in batches:
        assert batch.schema.names == ["bucket", "packet"]
        for bucket, packet in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found[bucket].append(packet)
    return found


def test_small_payloads_come_at_once_a_packet_each() -> None:
    (batch,) = packets([10, 11, 10], [b"rows", b"", b"counters"], partition=3)
    found = by_bucket([batch])
    assert batch.num_rows == 3
    assert joined(found[10]) == [b"rows", b"counters"]
    assert joined(found[11]) == [b""]


def test_large_payloads_come_in_packets_and_a_few_of_these_at_a_time() -> None:
    payloads = [bytes([n]) * (5 * PACKET_BYTES + n) for n in range(2)]
    batches = list(packets([10, 11], payloads, partition=0))
    sizes = [len(packet) for batch in batches for packet in batch.column("packet").to_pylist()]
    place = min(sizes) - 1
    assert max(sizes) == PACKET_BYTES + place
    assert len(sizes) == 5 + 6
    assert all(batch.nbytes < BYTES_AT_ONCE + PACKET_BYTES for batch in batches)
    found = by_bucket(batches)
    assert [joined(found[10]), joined(found[11])] == [[payloads[0]], [payloads[1]]]


def test_a_missing_packet_is_told() -> None:
    ((_, cut),) = by_bucket(packets([0], [b"abcdefg"], partition=7, packet_bytes=3)).items()
    with pytest.raises(BrokenPayload, match="payload 0 of partition 7 has 2 of 3 packets"):
        joined([cut[2], cut[0]])


def test_a_packet_that_comes_twice_is_told() -> None:
    ((_, cut),) = by_bucket(packets([0], [b"abc"], partition=0)).items()
    with pytest.raises(BrokenPayload, match="payload 0 of partition 0 has packet 0 twice"):
        joined(cut * 2)


@given(
    partitions=st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=40)), max_size=6), max_size=4
    ),
    packet_bytes=st.integers(1, 12),
    bytes_at_once=st.integers(1, 100),
    order=st.randoms(use_true_random=False),
)
def test_payloads_survive_any_order_of_their_packets(
    partitions: list[list[tuple[int, bytes]]], packet_bytes: int, bytes_at_once: int, order: Random
) -> None:
    sent: dict[int, list[bytes]] = defaultdict(list)
    arrived: dict[int, list[bytes]] = defaultdict(list)
    for number, payloads in enumerate(partitions):
        keys, texts = [key for key, _ in payloads], [text for _, text in payloads]
        for key, text in payloads:
            sent[key].append(text)
        batches = packets(keys, texts, number, packet_bytes=packet_bytes, bytes_at_once=bytes_at_once)
        for key, cut in by_bucket(batches).items():
            arrived[key] += cut
    for cut in arrived.values():
        order.shuffle(cut)
    assert {key: sorted(joined(cut)) for key, cut in arrived.items()} == {
        key: sorted(texts) for key, texts in sent.items()
    }
