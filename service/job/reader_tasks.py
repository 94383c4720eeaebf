"""Tasks of readers: a piece of a stream's input or control records, and how to pack it.

The source makes tasks without importing the code that runs them (``service.job.packing``).
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
        senders: Buckets that sent pairs to others in the previous batch.
    """

    batch: int
    records: bytes
    senders: tuple[int, ...] = ()


@dataclass
class PackPartition(InputPartition):
    """One piece of one stream's input, with the plan for packing it.

    Attributes:
        order: Number in the batch.
        batch: Batch number.
        version: Plan version in force.
        asked: Pickled ``PackPlan`` (shared by the partitions of a stream).
        piece: Input to read.
        late_bound_us: Watermark of the stream at the start of the batch, or None.
        records: Control records of the batch (``compressed``), in its first partition only; a separate task
            for them would cost 20 ms.
        senders: Buckets that sent pairs to others in the previous batch; like ``records``, only in the first
            partition.
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

    A plan of a hundred queries has 53 kB as text. An answer to Spark with the text would be too large for the
    loopback to send at once over TCP, and the rest would wait 40 ms for an acknowledgement (Nagle's
    algorithm).
    """
    return zlib.compress(json.dumps(texts).encode(), 1) if texts else b""


def decompressed(records: bytes) -> tuple[str, ...]:
    """Return the control records that were ``compressed``."""
    return tuple(json.loads(zlib.decompress(records))) if records else ()
