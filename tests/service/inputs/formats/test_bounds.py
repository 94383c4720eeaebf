"""Files that stand for much more than they hold are refused while they are read: their ends are damaged."""

from __future__ import annotations

import gzip
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.values.stream import Dialect
from service.errors import UnusableFile
from service.inputs.formats import jsonl, text_input
from service.inputs.formats.csv import inspect_csv
from service.inputs.formats.delimited import rows
from service.inputs.formats.findings.bad_rows import BadRow
from service.inputs.formats.jsonl import inspect_jsonl
from service.inputs.formats.parquet_footer import inspect_parquet
from tests.service.inputs.streams import files_stream

LARGE = "it has more than 1 MB when decompressed; split it, or declare a larger max_decompressed_mb"
LONG = "is longer than 0 MB"
OPEN = f"{LONG}, or a quote in it is never closed"
ROW = b'{"ts":1,"k":1,"v":1}\n'


@pytest.fixture(autouse=True)
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (text_input, jsonl, rows):
        monkeypatch.setattr(module, "MAX_ROW_BYTES", 50_000)
    monkeypatch.setattr(text_input, "_BLOCK_BYTES", 10_000)


def write(path: Path, *parts: bytes) -> str:
    """Write a compressed file of which the last bytes cannot be decompressed."""
    packed = gzip.compress(b"".join(parts))
    path.write_bytes(packed[:-8] + b"\xff" * 8)
    return str(path)


@pytest.mark.parametrize(
    ("file_format", "begin", "unit", "dialect", "told"),
    [
        ("jsonl", b"", b" ", {}, f"row 1 (line 1) {LONG}"),
        ("jsonl", ROW + b'{"k":"', b"x", {}, f"row 2 (line 2) {LONG}"),
        ("jsonl", b"[", b"[", {}, f"row 1 (line 1) {LONG}"),
        ("jsonl", b"", b"\n", {}, LARGE),
        ("jsonl", b"", ROW, {}, LARGE),
        ("csv", b"", b"x", {}, f"row 1 (line 1) {OPEN}"),
        ("csv", b"ts,k,v\n", b" ", {}, f"row 1 (line 2) {OPEN}"),
        ("csv", b'ts,k,v\n1,1,"', b"1,1,1\n", {}, f"row 1 (line 2) {OPEN}"),
        ("csv", b"ts,k,v\n", b"\n", {}, LARGE),
        ("csv", b"", b"x", {"skip_rows": 1}, f"line 1 {LONG}"),
    ],
)
@pytest.mark.parametrize("skips", [False, True])
def test_a_text_is_bounded_while_it_is_decompressed(
    folder: Path, file_format: str, begin: bytes, unit: bytes, dialect: dict, told: str, skips: bool
) -> None:
    path = write(folder / "x.gz", begin, unit * (3_000_000 // len(unit)))
    stream = files_stream(folder, file_format, max_decompressed_mb=1, dialect=Dialect(**dialect))
    inspect = inspect_csv if file_format == "csv" else inspect_jsonl
    bad: list[BadRow] | None = [] if skips else None
    with pytest.raises(UnusableFile) as refused:
        inspect(stream, path, bad)
    # A line of JSON that is too long is skipped, up to the limit of the file.
    assert refused.value.primary == (LARGE if skips and file_format == "jsonl" else told)


def test_a_line_that_is_too_long_is_skipped_and_the_next_is_read(folder: Path) -> None:
    stream = files_stream(folder, "jsonl")
    (folder / "x").write_bytes(ROW + b"\n" + b"x" * 120_000 + b"\n\n" + ROW)
    bad: list[BadRow] = []
    assert inspect_jsonl(stream, str(folder / "x"), bad).rows == 2
    assert [(found.row, found.line, found.reason) for found in bad] == [(2, 3, LONG)]


def test_a_row_group_is_bounded_before_it_is_read(folder: Path) -> None:
    zeros = pa.repeat(0, 200_000)
    table = pa.table({"ts": zeros.cast(pa.timestamp("us")), "k": zeros, "v": zeros.cast(pa.float64())})
    pq.write_table(table, folder / "x")
    assert (folder / "x").stat().st_size < 20_000
    for most_mb, told in ((5, None), (4, "row group 1 of 200000 rows has more than 4 MB when decompressed")):
        stream = files_stream(folder, max_decompressed_mb=most_mb)
        with duckdb.connect() as connection:
            if told is None:
                assert inspect_parquet(connection, stream, str(folder / "x")).rows == 200_000
                continue
            with pytest.raises(UnusableFile, match=told):
                inspect_parquet(connection, stream, str(folder / "x"))
