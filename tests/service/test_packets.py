"""Payloads come out of their packets as they went in, in whatever order these arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.packets import PACKET_BYTES, PacketMissing, cut, joined


def test_a_small_payload_is_one_packet() -> None:
    (packet,) = cut(b"rows", partition=3, number=1)
    assert joined([packet]) == [b"rows"]


def test_packets_are_no_larger_than_they_may_be() -> None:
    sizes = [len(packet) for packet in cut(bytes(2 * PACKET_BYTES + 1), partition=0, number=0)]
    place = min(sizes) - 1
    assert sizes == [PACKET_BYTES + place, PACKET_BYTES + place, 1 + place]


def test_a_missing_packet_is_told() -> None:
    first, _, last = cut(b"abcdefg", partition=7, number=2, packet_bytes=3)
    with pytest.raises(PacketMissing, match="payload 2 of partition 7 has 2 of 3 packets"):
        joined([last, first])


@given(
    payloads=st.dictionaries(
        st.tuples(st.integers(0, 3), st.integers(0, 3)), st.binary(max_size=40), max_size=6
    ),
    packet_bytes=st.integers(1, 12),
    order=st.randoms(use_true_random=False),
)
def test_payloads_survive_any_order_of_their_packets(payloads, packet_bytes, order) -> None:  # type: ignore[no-untyped-def]
    packets = [
        packet
        for (partition, number), payload in payloads.items()
        for packet in cut(payload, partition, number, packet_bytes)
    ]
    order.shuffle(packets)
    assert sorted(joined(packets)) == sorted(payloads.values())
