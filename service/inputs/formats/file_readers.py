"""Readers by file format, named as in a stream's source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import pyarrow as pa

from catalog.values.stream import Stream
from service.inputs.formats.csv import read_csv
from service.inputs.formats.jsonl import read_jsonl
from service.inputs.formats.parquet import read_parquet


class ReadRows(Protocol):
    """Function that reads rows of a file."""

    def __call__(
        self,
        stream: Stream,
        path: str,
        columns: Sequence[str],
        first_row: int,
        rows: int,
        *,
        skips: bool = False,
        latest_us: int | None = None,
    ) -> pa.Table:
        """Return rows of a file; raise `UnusableFile` if they cannot be read or some are missing."""


READERS: Final[Mapping[str, ReadRows]] = {"parquet": read_parquet, "jsonl": read_jsonl, "csv": read_csv}
