"""Writes joined pairs to Parquet files, which stay invisible to readers until a manifest names them.

A bucket's task writes each pair once, with its route, for all queries. It passes on only the file's name, so
that pairs do not travel through Spark to a separate writer. A file's name contains the engine's fencing epoch
and a random part. So a repeated task, or a task of a former engine, never overwrites a file that a manifest
names.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.values.batch import ResultFile
from operators.storage.folder import Folder, prepare, publish
from operators.storage.writeback import begin_writeback
from service.results.files.result_check import length_and_checksum

#: Columns with repeated values: many pairs share a route, version and batch.
_REPEATED = ("_route", "_plan_version", "_batch")


@dataclass(frozen=True, slots=True)
class ResultWriter:
    """Writes the files of one engine.

    Attributes:
        results_dir: Folder of result files.
        late_dir: Folder of late rows, or None if late rows are not kept.
        epoch: Fencing epoch of the engine.
    """

    results_dir: Folder
    late_dir: Folder | None
    epoch: int

    def write_pairs(self, batch: int, family: str, rows: pa.RecordBatch) -> ResultFile:
        """Write joined pairs of a family and return the file, relative to the results directory."""
        name = self._name(batch, family)
        return ResultFile(name, family, rows.num_rows, *self._write(self.results_dir, name, rows))

    def write_late(self, batch: int, stream_id: int, rows: pa.RecordBatch) -> ResultFile | None:
        """Write late rows and return the file, named by the stream id, or None if late rows are not kept."""
        if self.late_dir is None:
            return None
        name = self._name(batch, str(stream_id))
        of = str(stream_id)
        return ResultFile(name, of, rows.num_rows, *self._write(self.late_dir, name, rows))

    def write_violating(
        self, batch: int, place: tuple[int, str, str], rows: pa.RecordBatch
    ) -> ResultFile | None:
        """Write rows that violate a punctuation or a ``unique`` constraint, as ``write_late`` does.

        Args:
            batch: Batch number.
            place: Stream id, family id and side.
            rows: The rows.
        """
        if self.late_dir is None:
            return None
        stream_id, family, side = place
        name = self._name(batch, f"{stream_id}.{family}.{side}")
        of = f"{stream_id}.{family}.{side}"
        return ResultFile(name, of, rows.num_rows, *self._write(self.late_dir, name, rows))

    def _name(self, batch: int, of: str) -> str:
        return f"b{batch:09d}-{of}-e{self.epoch}-{uuid.uuid4().hex[:12]}.parquet"

    def publish(self, files: Iterable[ResultFile], late_files: Iterable[ResultFile]) -> dict[str, str]:
        """Make files written here readable on all machines, before a report names the files.

        Returns:
            ETags of the files by path, if the store gives any.

        Raises:
            StorageDown: The object store does not accept a file.
        """
        etags = publish(self.results_dir, [file.path for file in files])
        if self.late_dir is not None:
            etags |= publish(self.late_dir, [file.path for file in late_files])
        return etags

    def _write(self, folder: Folder, name: str, rows: pa.RecordBatch) -> tuple[int, int]:
        """Write a file and return its length and checksum."""
        prepare(folder)
        path = folder / name
        with path.open("wb") as file, parquet_writer(file, rows.schema) as writer:
            writer.write_batch(rows, row_group_size=max(rows.num_rows, 1))
        begin_writeback(path)
        return length_and_checksum(path)


def parquet_writer(
    file: IO[bytes], schema: pa.Schema, *, statistics: Collection[str] = ()
) -> pq.ParquetWriter:
    """Return the writer of a result file.

    Only columns with repeated values have dictionaries. In most other columns, consecutive values differ
    little, so delta encoding takes half the bytes of lz4, and less time.

    Args:
        file: An open file.
        schema: Schema of the rows.
        statistics: Columns for which each row group records the minimum and maximum.
    """
    repeated = [column for column in _REPEATED if column in schema.names]
    packed = [f.name for f in schema if _counts(f.type) and f.name not in repeated]
    return pq.ParquetWriter(
        file,
        schema,
        compression={name: "none" if name in packed else "lz4" for name in schema.names},
        use_dictionary=repeated,
        column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
        write_statistics=[name for name in statistics if name in schema.names],
    )


def _counts(kind: pa.DataType) -> bool:
    """Return whether a column type is stored as whole numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))
