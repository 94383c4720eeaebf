"""The readers' tasks: a piece of input is read and packed, a payload per bucket."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from catalog.errors import InternalError
from operators.pack import Packer, control_payloads, packer
from operators.payload import Payload
from service.inputs.read import read_partition
from service.packets import packets
from service.reader_tasks import ControlPartition, PackPartition, decompressed

#: Packers kept per worker: one per stream of the plan in force.
PACKERS_KEPT = 16


def read(partition: InputPartition, bucket_keys: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Read one partition and yield a payload per bucket, and one that says what CPU time that took.

    Args:
        partition: What to read.
        bucket_keys: Spark's key of each bucket.
    """
    started_s = time.process_time()
    order = 0
    if isinstance(partition, ControlPartition):
        texts = decompressed(partition.records)
        payloads = control_payloads(texts, order, partition.batch, len(bucket_keys))
    elif isinstance(partition, PackPartition):
        order = partition.order
        payloads = _pack(partition)
    else:
        raise InternalError(f'partition "{type(partition).__name__}" is not one of this source')
    keys, encoded = list(bucket_keys), [payload.encode() for payload in payloads]
    if isinstance(partition, PackPartition):
        pack_us = round((time.process_time() - started_s) * 1_000_000)
        keys.append(keys[order % len(keys)])
        encoded.append(Payload(order, partition.batch, pack_us=pack_us).encode())
    yield from packets(keys, encoded, order)


@lru_cache(maxsize=PACKERS_KEPT)
def _packer(asked: bytes) -> Packer:
    return packer(pickle.loads(asked))


def _pack(partition: PackPartition) -> list[Payload]:
    compiled = _packer(partition.asked)
    bound = partition.late_bound_us
    table = read_partition(compiled.stream, partition.piece, columns=sorted(compiled.columns()))
    if bound is not None and compiled.may_have_late_rows(table, bound):
        # Late rows are kept whole, so read the columns besides those that queries need.
        table = read_partition(compiled.stream, partition.piece)
    payloads = compiled.pack(table, partition.order, partition.batch, bound)
    return [replace(payload, control=decompressed(partition.records)) for payload in payloads]
