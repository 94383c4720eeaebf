"""The tasks of readers: read a piece of input and pack it into one payload per bucket.

If the chain runs on the same machine, rows are passed in files (``segments.files``), and the payloads, which
go through Spark, name the files. A small number of rows is part of the payload, because writing a file would
take longer.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from catalog.errors import InternalError
from catalog.times.clock import wall_clock_us
from operators.pack.pack import Packer, control_payloads, packer
from operators.pack.payload import Payload, WriteRows
from operators.segments.files.segment_files import Fence, SegmentFiles
from operators.segments.segment import ArrivedFile, labelled
from service.inputs.reading.read import read_partition
from service.job.packets import packets
from service.job.reader_tasks import ControlPartition, PackPartition, decompressed

#: Maximum number of packers that a worker keeps. It needs one per stream of the plan in force.
PACKERS_KEPT = 16


@dataclass(frozen=True, slots=True)
class RowFiles:
    """Directory for files of rows, and the size from which rows are passed in a file.

    Attributes:
        files: Directory of files that the chain's workers can map.
        least_bytes: Bytes from which the rows of one family side and bucket are passed in a file.
    """

    files: SegmentFiles
    least_bytes: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> RowFiles | None:
        """Return the row files that the source's options describe, or None if all rows go through Spark."""
        if not options["rows_dir"]:
            return None
        fence = Fence(Path(options["fence"]), int(options["epoch"])) if options.get("fence") else None
        return cls(SegmentFiles(Path(options["rows_dir"]), fence), int(options["rows_file_bytes"]))


def read(
    partition: InputPartition, bucket_keys: Sequence[int], row_files: RowFiles | None = None
) -> Iterator[pa.RecordBatch]:
    """Read one partition; yield packets of a payload per bucket, and of one with start and CPU time.

    Args:
        partition: Input to read.
        bucket_keys: Spark's key of each bucket.
        row_files: Files for many rows. None means that all rows go in the payload.
    """
    started_s, began_us = time.process_time(), wall_clock_us()
    order = 0
    if isinstance(partition, ControlPartition):
        texts = decompressed(partition.records)
        control = control_payloads(texts, order, partition.batch, len(bucket_keys), partition.senders)
        encoded = [payload.encode() for payload in control]
    elif isinstance(partition, PackPartition):
        order = partition.order
        encoded = [
            payload.encode(_writer(partition, bucket, row_files) if row_files is not None else None)
            for bucket, payload in enumerate(_pack(partition))
        ]
    else:
        raise InternalError(f'partition "{type(partition).__name__}" does not belong to this source')
    pack_us = round((time.process_time() - started_s) * 1_000_000)
    keys = [*bucket_keys, bucket_keys[order % len(bucket_keys)]]
    encoded.append(Payload(order, partition.batch, pack_us=pack_us, began_us=began_us).encode())
    yield from packets(keys, encoded, order)


@lru_cache(maxsize=PACKERS_KEPT)
def _packer(asked: bytes) -> Packer:
    return packer(pickle.loads(asked))


def _writer(partition: PackPartition, bucket: int, row_files: RowFiles) -> WriteRows:
    """Return a function that writes rows of a bucket's payload to a file if they have enough bytes."""
    parts = {(part.family, part.side): part for part in _packer(partition.asked).sides}
    numbers = {part: number for number, part in enumerate(parts)}

    def write(family: str, side: str, rows: pa.RecordBatch) -> ArrivedFile | None:
        if rows.nbytes < row_files.least_bytes:
            return None
        filters = tuple(f.bit for f in parts[family, side].filters)
        rows = labelled(rows, partition.version, filters)
        return row_files.files.send(partition.batch, partition.order, bucket, numbers[family, side], rows)

    return write


def _pack(partition: PackPartition) -> list[Payload]:
    compiled = _packer(partition.asked)
    bound = partition.late_bound_us
    columns = sorted(compiled.columns())
    table = read_partition(compiled.stream, partition.piece, columns=columns, punctuations=True)
    if bound is not None and compiled.may_have_late_rows(table, bound):
        # Late rows are kept with all their columns, so the columns that no query needs are read, too.
        table = read_partition(compiled.stream, partition.piece, punctuations=True)
    payloads = compiled.pack(table, partition.order, partition.batch, bound)
    control = decompressed(partition.records)
    return [replace(payload, control=control, senders=partition.senders) for payload in payloads]
