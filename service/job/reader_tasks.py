"""Descriptions of readers' tasks: the input or control records to read, and how to pack them.

The source makes these descriptions without importing the code that runs the tasks (``service.job.packing``).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from service.inputs.partitions import InputPartition as Piece


@dataclass
class ControlPartition(InputPartition):
    """Partition that carries the batch's control records to every bucket, if the batch has no input.

    Attributes:
        batch: Batch number.
        records: The records (``compressed``).
        senders: Buckets that wrote exchange files for other buckets in the previous batch.
    """

    batch: int
    records: bytes
    senders: tuple[int, ...] = ()


@dataclass
class PackPartition(InputPartition):
    """One piece of one stream's input, with the plan for packing it.

    Attributes:
        order: Number of the partition in the batch.
        batch: Batch number.
        version: Plan version in force.
        asked: Pickled ``PackPlan`` (shared by the partitions of a stream).
        piece: Input to read.
        late_bound_us: Watermark of the stream at the start of the batch, µs UTC, or None if it has none.
        records: Control records of the batch (``compressed``) in its first partition, empty in others. A
            separate task for the records would cost 20 ms.
        senders: In the batch's first partition, the buckets that wrote exchange files for other buckets in
            the previous batch; empty in others.
    """

    order: int
    batch: int
    version: int
    asked: bytes
    piece: Piece
    late_bound_us: int | None
    records: bytes = b""
    senders: tuple[int, ...] = ()


def compressed(texts: Sequence[str]) -> bytes:
    """Return control records in the form that partitions carry.

    A plan of a hundred queries has 53 kB as text. An answer to Spark with this text would be too large to be
    sent at once over TCP on the loopback interface, and its end would wait 40 ms for an acknowledgement
    (Nagle's algorithm).
    """
    return zlib.compress(json.dumps(texts).encode(), 1) if texts else b""


def decompressed(records: bytes) -> tuple[str, ...]:
    """Return the control records that `compressed` was given, as texts."""
    return tuple(json.loads(zlib.decompress(records))) if records else ()
