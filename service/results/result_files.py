"""ROUTE's last step: joined pairs become Parquet files that nobody sees before a manifest names them.

A bucket's task writes each pair once, with its route, for all queries, and passes on the file's name
alone, so that pairs do not travel through Spark to a writer of their own. A file's name contains the
writing engine's fencing epoch and a random part, so that a second attempt or a survivor never overwrites
a file that a manifest names.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.values.batch import ResultFile
from operators.segments.writeback import begin_writeback
from service.results.result_check import length_and_checksum

#: Columns whose values repeat: one route, version and batch for many pairs.
_REPEATED = ("_route", "_plan_version", "_batch")


@dataclass(frozen=True, slots=True)
class ResultWriter:
    """Writes the files of one engine.

    Attributes:
        results_dir: Directory of result files.
        late_dir: Directory of late rows; None keeps no late rows.
        epoch: Fencing epoch of the engine.
    """

    results_dir: str
    late_dir: str | None
    epoch: int

    def write_pairs(self, batch: int, family: str, rows: pa.RecordBatch) -> ResultFile:
        """Write joined pairs of a family and return the file, relative to the results directory."""
        name = self._name(batch, family)
        return ResultFile(name, family, rows.num_rows, *self._write(Path(self.results_dir) / name, rows))

    def write_late(self, batch: int, stream_id: int, rows: pa.RecordBatch) -> ResultFile | None:
        """Write late rows and return the file, named by the stream id; None if they are not kept."""
        if self.late_dir is None:
            return None
        name = self._name(batch, str(stream_id))
        of = str(stream_id)
        return ResultFile(name, of, rows.num_rows, *self._write(Path(self.late_dir) / name, rows))

    def _name(self, batch: int, of: str) -> str:
        return f"b{batch:09d}-{of}-e{self.epoch}-{uuid.uuid4().hex[:12]}.parquet"

    def _write(self, path: Path, rows: pa.RecordBatch) -> tuple[int, int]:
        """Write a file and return its length and checksum."""
        # Pairs are written once and read by column: dictionaries only where values repeat. Of most columns
        # the differences are small: written as such they take half the bytes and less time than lz4 does.
        repeated = [column for column in _REPEATED if column in rows.schema.names]
        packed = [f.name for f in rows.schema if _counts(f.type) and f.name not in repeated]
        with (
            path.open("wb") as file,
            pq.ParquetWriter(
                file,
                rows.schema,
                compression={name: "none" if name in packed else "lz4" for name in rows.schema.names},
                use_dictionary=repeated,
                column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
                write_statistics=False,
            ) as writer,
        ):
            writer.write_batch(rows, row_group_size=max(rows.num_rows, 1))
        begin_writeback(path)
        return length_and_checksum(path)


def _counts(kind: pa.DataType) -> bool:
    """Tell whether a column is one of whole numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))
