"""Conversion of rows to and from pandas, polars and Arrow; each package is imported when needed."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sluice_client.errors import MissingExtra
from sluice_client.rows import Row

if TYPE_CHECKING:
    import pyarrow as pa

#: Number of rows of an Arrow table that are converted to Python objects at once.
_CHUNK_ROWS = 10_000


def required(package: str, extra: str) -> Any:
    """Import a package that an extra installs.

    Raises:
        MissingExtra: The package is not installed.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise MissingExtra(package, extra) from error


def rows_of(data: Any) -> Iterable[Row]:
    """Return the rows of a user's data: an iterable of mappings, or a frame of pandas, polars or Arrow."""
    package = type(data).__module__.partition(".")[0]
    if package == "polars":
        rows: Iterable[Row] = data.iter_rows(named=True)
        return rows
    if package == "pandas":  # through Arrow, which distinguishes NaT and NaN from NULL
        return _rows_of_table(required("pyarrow", "pandas").Table.from_pandas(data, preserve_index=False))
    if package == "pyarrow":
        return _rows_of_table(data)
    mappings: Iterable[Row] = data
    return mappings


def _rows_of_table(table: Any) -> Iterator[Row]:
    for start in range(0, table.num_rows, _CHUNK_ROWS):
        yield from table.slice(start, _CHUNK_ROWS).to_pylist()


def table_of(streams: Sequence[bytes]) -> pa.Table:
    """Return the tables of Arrow streams as one; a column that a table lacks is NULL in its rows."""
    pa = required("pyarrow", "arrow")
    tables = [pa.ipc.open_stream(stream).read_all() for stream in streams]
    return pa.concat_tables(tables, promote_options="default")
