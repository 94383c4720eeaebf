"""Merging of result files: one file holds the rows of several files, in their order.

    b17  b17  b18  b19  b19      many files, of a few rows each
    [17 17 17 18 | 19 19 19]     one file, in row groups whose statistics show their batches

Rows pass through memory a row group at a time. A column that a file lacks is NULL in its rows, as it is for
readers (``result_sql``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from operators.storage.writeback import begin_writeback
from service.results.files.result_check import length_and_checksum
from service.results.files.result_files import parquet_writer

#: Rows per row group: a page of 10,000 results mostly reads one or two row groups.
_ROWS_PER_GROUP = 65_536


def merge_files(paths: Sequence[Path], target: Path) -> tuple[int, int, int]:
    """Write the rows of several files into one.

    Args:
        paths: Files with the same kind of rows, in the order of their rows.
        target: File that does not exist.

    Returns:
        Number of rows, length in bytes and CRC-32C of the new file.

    Raises:
        ArrowException: A file is not a result file, or a column has different types in two files.
        OSError: A file cannot be read, or the new file cannot be written.
    """
    schema = pa.unify_schemas([pq.read_schema(path, memory_map=True) for path in paths])
    rows = 0
    with target.open("xb") as file, parquet_writer(file, schema, statistics=("_batch",)) as writer:
        for group in _groups(paths, schema):
            writer.write_table(group, row_group_size=group.num_rows)
            rows += group.num_rows
    begin_writeback(target)
    return rows, *length_and_checksum(target)


def _groups(paths: Sequence[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of files in tables of about the size of a row group."""
    waiting, rows = [schema.empty_table()], 0
    for path in paths:
        with pq.ParquetFile(path, memory_map=True) as file:
            for batch in file.iter_batches(_ROWS_PER_GROUP, use_threads=False):
                waiting.append(_conformed(pa.Table.from_batches([batch]), schema))
                rows += batch.num_rows
                if rows >= _ROWS_PER_GROUP:
                    yield pa.concat_tables(waiting)
                    waiting, rows = [schema.empty_table()], 0
    if rows:
        yield pa.concat_tables(waiting)


def _conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with all columns of a schema; missing columns are NULL."""
    columns = [
        rows.column(field.name) if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
