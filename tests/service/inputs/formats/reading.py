"""Reading one text as a file of a stream, for tests."""

from __future__ import annotations

from pathlib import Path

from catalog.values.stream import Column, Dialect, FilesSource, Stream, TimeUnit
from service.errors import UnusableFile
from service.inputs.formats.csv import inspect_csv, read_csv
from service.inputs.formats.findings.facts import FileFacts
from service.inputs.formats.jsonl import inspect_jsonl, read_jsonl
from tests.service.inputs.streams import TS_K_V

INSPECT = {"csv": inspect_csv, "jsonl": inspect_jsonl}
READ = {"csv": read_csv, "jsonl": read_jsonl}


def text_stream(
    path: Path,
    file_format: str = "csv",
    columns: tuple[Column, ...] = TS_K_V,
    time_unit: TimeUnit | None = None,
    **dialect,
) -> Stream:
    source = FilesSource(file_format, str(path), dialect=Dialect(**dialect))
    return Stream(1, "S", columns, "ts", 0, source, time_unit=time_unit)


def read_rows(stream: Stream) -> list[tuple[object, ...]]:
    """All rows of the one file of a stream, as the listing and then a reader see it."""
    file_format, path = stream.source.format, stream.source.path
    facts: FileFacts = INSPECT[file_format](stream, path)
    names = [column.name for column in stream.columns]
    table = READ[file_format](stream, path, names, 0, facts.rows)
    return [tuple(row.values()) for row in table.to_pylist()]


def read_text(path: Path, text: str | bytes, **options) -> list[tuple[object, ...]] | str:
    """Rows of a text, or why it is refused."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        return read_rows(text_stream(path, **options))
    except UnusableFile as error:
        return error.primary
