"""Packets: a payload is cut into packets, which Spark sends to the payload's bucket, and joined there.

    payload 2 of partition 7, 600 kB   ->   | 7 2 0 3 | 256 kB |  | 7 2 1 3 | 256 kB |  | 7 2 2 3 | 88 kB |

On its way through the JVM, a payload is copied about eight times: by the shuffle, the sort, Arrow and the
socket. A payload of several megabytes would get new memory for every copy, and the kernel would zero this
memory page by page. Packets reuse the memory of earlier packets. In the many-keys benchmark with batches of
four million rows (24 MB per bucket), a chain task takes 150-430 ms of the JVM's CPU time if a payload is one
packet, and 40-60 ms if it is many.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from service.errors import BrokenPayload

#: Maximum bytes of a payload in one packet. Packets of 64 kB took equally long.
PACKET_BYTES = 256 << 10
#: Maximum bytes of packets that the JVM gets as one Arrow batch.
BYTES_AT_ONCE = 1 << 20

#: Header of a packet: number of the partition, of the payload in the partition and of the packet in the
#: payload, and the payload's count of packets.
_PLACE = struct.Struct("<IIII")


def packets(
    keys: Sequence[int],
    payloads: Sequence[bytes],
    partition: int,
    *,
    packet_bytes: int = PACKET_BYTES,
    bytes_at_once: int = BYTES_AT_ONCE,
) -> Iterator[pa.RecordBatch]:
    """Yield the packets of a partition's payloads, each with the key of its bucket.

    Args:
        keys: For each payload, Spark's key of the bucket that gets it.
        payloads: Payloads to send. An empty payload becomes one empty packet.
        partition: Number of the partition in its batch.
        packet_bytes: Maximum bytes of a payload in one packet.
        bytes_at_once: Maximum bytes of packets in one Arrow batch. A single packet may exceed it.

    Yields:
        ``bucket: int32, packet: binary``.
    """
    buckets: list[int] = []
    cut: list[bytes] = []
    waiting = 0
    for number, (key, payload) in enumerate(zip(keys, payloads, strict=True)):
        for packet in _cut(payload, partition, number, packet_bytes):
            if cut and waiting + len(packet) > bytes_at_once:
                yield _rows(buckets, cut)
                buckets, cut, waiting = [], [], 0
            buckets.append(key)
            cut.append(packet)
            waiting += len(packet)
    if cut:
        yield _rows(buckets, cut)


def _cut(payload: bytes, partition: int, number: int, packet_bytes: int) -> Iterator[bytes]:
    """Yield the packets of one payload."""
    count = max(1, -(-len(payload) // packet_bytes))
    whole = memoryview(payload)
    for packet in range(count):
        place = _PLACE.pack(partition, number, packet, count)
        yield b"".join([place, whole[packet * packet_bytes : (packet + 1) * packet_bytes]])


def _rows(buckets: Sequence[int], cut: Sequence[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(buckets, type=pa.int32()), pa.array(cut, type=pa.binary())], names=["bucket", "packet"]
    )


def joined(packets: Iterable[bytes]) -> list[bytes]:
    """Join a bucket's packets, which may arrive in any order, and return its payloads.

    Raises:
        BrokenPayload: A packet of a payload is missing or arrived twice.
    """
    parts: dict[tuple[int, int], dict[int, memoryview]] = {}
    counts: dict[tuple[int, int], int] = {}
    for data in packets:
        partition, number, packet, count = _PLACE.unpack_from(data)
        own = parts.setdefault((partition, number), {})
        if packet in own:
            raise BrokenPayload(f"payload {number} of partition {partition} has packet {packet} twice")
        own[packet] = memoryview(data)[_PLACE.size :]
        counts[partition, number] = count
    for (partition, number), own in parts.items():
        if len(own) < (count := counts[partition, number]):
            raise BrokenPayload(
                f"payload {number} of partition {partition} has {len(own)} of {count} packets"
            )
    return [b"".join(packet for _, packet in sorted(own.items())) for own in parts.values()]
