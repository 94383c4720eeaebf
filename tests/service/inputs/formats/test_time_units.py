"""Event times that count another unit than their stream declares."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from service.errors import EventRejected
from service.inputs.formats.findings.bad_rows import BadRow
from service.inputs.sources.posted.events import events_to_table
from tests.service.inputs.formats.reading import INSPECT, read_text, text_stream
from tests.service.inputs.formats.test_parquet import read_table
from tests.service.inputs.streams import stream_of

SECONDS = 1_769_000_000
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def read(path: Path, file_format: str, numbers: list[int], unit: str) -> object:
    """The rows of a file or a post, or why it is refused."""
    if file_format == "csv":
        text = "ts,k,v\n" + "".join(f"{number},1,\n" for number in numbers)
        return read_text(path, text, time_unit=unit)
    if file_format == "jsonl":
        text = "".join(f'{{"ts": {number}, "k": 1}}\n' for number in numbers)
        return read_text(path, text, file_format="jsonl", time_unit=unit)
    if file_format == "parquet":
        return read_table(path, pa.table({"ts": numbers, "v": [1] * len(numbers)}), time_unit=unit)
    try:
        table = events_to_table(replace(stream_of(), time_unit=unit), [{"ts": number} for number in numbers])
    except EventRejected as error:
        return f"{error.primary} {error.hint}"
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("file_format", ["csv", "jsonl", "parquet", "post"])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("meant", UNITS)
def test_a_wrongly_declared_unit_is_refused_with_the_one_to_declare(
    tmp_path: Path, file_format: str, unit: str, meant: str
) -> None:
    # A sentinel is in every unit the same time, and an outlier does not outweigh the others.
    numbers = [0, *[(SECONDS + i) * UNITS[meant] for i in range(3)], 5]
    found = read(tmp_path / "x", file_format, numbers, unit)
    if unit == meant:
        assert isinstance(found, list)
        assert found[1][0] == dt.datetime(2026, 1, 21, 12, 53, 20)
    else:
        assert isinstance(found, str)
        assert f"time_unit: {meant} in the stream" in found


def test_times_written_as_text_have_no_unit(tmp_path: Path) -> None:
    early = [(dt.datetime(1970, 1, 21, 11, 23, 20), 1, None)] * 2
    text = "ts,k,v\n" + "1970-01-21T11:23:20Z,1,\n" * 2
    assert read_text(tmp_path / "x.csv", text, time_unit="us") == early
    text = '{"ts": "1970-01-21T11:23:20Z", "k": 1}\n' * 2
    assert read_text(tmp_path / "x.jsonl", text, file_format="jsonl", time_unit="us") == early


@pytest.mark.parametrize("file_format", ["csv", "jsonl"])
def test_a_file_of_another_unit_is_not_skipped_row_by_row(tmp_path: Path, file_format: str) -> None:
    path = tmp_path / "x"
    line = '{"ts": %d}\n' if file_format == "jsonl" else "%d,1,\n"
    path.write_text("ts,k,v\n" * (file_format == "csv") + line % (SECONDS * 1000) * 3)
    bad: list[BadRow] = []
    with pytest.raises(Exception, match=r"most likely counts milliseconds; declare time_unit: ms"):
        INSPECT[file_format](text_stream(path, file_format, time_unit="s"), str(path), bad)
