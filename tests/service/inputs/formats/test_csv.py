"""CSV files of other dialects, and what is said of those that cannot be read."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import io
import zipfile
from decimal import Decimal
from pathlib import Path

import pytest

from catalog.values.stream import Column
from tests.service.inputs.formats.reading import read_text

T = "2024-05-01T08:00:00Z"
AT = dt.datetime(2024, 5, 1, 8)
TEXT = (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "string"))
MISSING = 'it is of another schema: column "ts" is missing; the header found is '


def zip_archive() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
    return made.getvalue()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.csv"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (
            f'{T},1,a\n{T},2,"19 inch rack\n{T},3,c\n',
            "row 2 (line 3): the quote before '\"19 inch rack' is never closed; "
            "if it is text, write it twice in a quoted field",
        ),
        (f'{T},1,"a"b\n', f"row 1 (line 2): text follows a closing quote: '{T},1,\"a\"b'"),
        (f"{T},1\n", f"row 1 (line 2) has 2 fields, not 3: '{T},1'"),
        (f"{T},1,a,b\n", f"row 1 (line 2) has 4 fields, not 3: '{T},1,a,b'"),
        (f'\n{T},1,"a\nb"\n{T},x,a\n', "row 2 (line 5), column \"k\": 'x' is not an integer of 64 bits"),
        (f"{T},0x10,a\n", "row 1 (line 2), column \"k\": '0x10' is not an integer of 64 bits"),
        (f"{T},1.5,a\n", "row 1 (line 2), column \"k\": '1.5' is not an integer of 64 bits"),
        (f"{T},15e-1,a\n", "row 1 (line 2), column \"k\": '15e-1' is not an integer of 64 bits"),
        (f"{T},1e19,a\n", "row 1 (line 2), column \"k\": '1e19' is not an integer of 64 bits"),
        (
            f"{T},N/A,a\n",
            "row 1 (line 2), column \"k\": 'N/A' is not an integer of 64 bits; "
            'it can be read as NULL with null_values: ["", "N/A"]',
        ),
        (
            f'{T},"1",a\n{T},"2" ,a\n',
            'row 2 (line 3), column "k": \'"2" \' is not an integer of 64 bits; '
            "remove the spaces after the closing quote",
        ),
    ],
)
def test_a_malformed_row_is_named_as_an_editor_counts(file: Path, rows: str, reason: str) -> None:
    assert read_text(file, "ts,k,v\n" + rows, columns=TEXT) == reason


@pytest.mark.parametrize(
    ("rows", "read"),
    [
        (f'{T},1,\n{T},"",""\n', [(AT, 1, None), (AT, None, "")]),  # in quotes it is text, and no number
        (f"{T},1,a,\n", [(AT, 1, "a")]),
        (f'{T}, 1 , "a""b" \r\n\r\n{T},+2.0,19" rack\r', [(AT, 1, 'a"b'), (AT, 2, '19" rack')]),
        (f"{T},1,0x10", [(AT, 1, "0x10")]),
        (f"{T},1E+06,a\n{T},-1.5e1,a\n{T},2.,a\n", [(AT, 10**6, "a"), (AT, -15, "a"), (AT, 2, "a")]),
        (f"{T},{2**63 - 1},a\n{T},1e0,a\n", [(AT, 2**63 - 1, "a"), (AT, 1, "a")]),
        (f'"{T}" ,"1", "a"  \n', [(AT, 1, "a")]),
        ("2024/5/1 8:00,1,a\n2024-05-01T10:00:00+02:00,1,\n", [(AT, 1, "a"), (AT, 1, None)]),
    ],
)
def test_a_sound_row_is_read(file: Path, rows: str, read: list[tuple[object, ...]]) -> None:
    assert read_text(file, "ts,k,v\n" + rows, columns=TEXT) == read


def test_names_in_a_header_may_have_spaces_around_them(file: Path) -> None:
    assert read_text(file, f' TS , "k",v \n{T},1,a\n', columns=TEXT) == [(AT, 1, "a")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("TS;K;V\n1;2;3\n", MISSING + 'TS;K;V; it can be read with delimiter: ";"'),
        ("ts\tk\tv\n", MISSING + 'ts\tk\tv; it can be read with delimiter: "\\t"'),
        ("# of May\n\nts|k|v\n", MISSING + '# of May; it can be read with delimiter: "|", skip_rows: 2'),
        (f"{T},1,a\n", MISSING + f"{T},1,a; it can be read with header: false"),
        ("at,k,v\n", MISSING + "at,k,v"),
        (
            "ts,K,K,v\n",
            'column "k" appears 2 times in the file ("K", "K"); rename or remove all but one; '
            "the header found is ts,K,K,v",
        ),
    ],
)
def test_a_header_without_the_columns_is_shown_with_what_would_read_it(
    file: Path, text: str, reason: str
) -> None:
    assert read_text(file, text, columns=TEXT) == reason


def test_a_file_of_another_dialect_is_read_with_its_options(file: Path) -> None:
    columns = (
        Column("ts", "timestamp"),
        Column("k", "bigint"),
        Column("x", "double"),
        Column("m", "decimal(10,2)"),
        Column("d", "date"),
        Column("v", "string"),
    )
    text = (
        "Export of May\n"
        "TS;K;X;M;D;V\n"
        "31.01.2013 05:15:00;1.234;-1.234,5;12,30;1.2.13;'a;''b'\n"
        "01.07.2013 05:15:00;n/a;0,5;;;'n/a'\n"
    )
    options = {
        "skip_rows": 1,
        "delimiter": ";",
        "quote": "'",
        "thousands": ".",
        "decimal_point": ",",
        "null_values": ("", "n/a"),
        "timestamp_format": "%d.%m.%Y %H:%M:%S",
        "date_format": "%d.%m.%y",
        "timezone": "Europe/Berlin",
    }
    rows = [
        (dt.datetime(2013, 1, 31, 4, 15), 1234, -1234.5, Decimal("12.30"), dt.date(2013, 2, 1), "a;'b"),
        (dt.datetime(2013, 7, 1, 3, 15), None, 0.5, None, None, "n/a"),
    ]
    assert read_text(file, "\ufeff" + text, columns=columns, **options) == rows
    assert read_text(file, text.encode("utf-16"), columns=columns, encoding="utf-16", **options) == rows
    assert "'2013-02-01' is not a date in the format \"%d.%m.%y\"" in read_text(
        file, text.replace("1.2.13", "2013-02-01"), columns=columns, **options
    )
    # A number of another dialect is refused, not read as another number.
    assert "'0.5' is not a number" in read_text(file, text.replace("0,5", "0.5"), columns=columns, **options)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (gzip.compress(b"ts,k,v\n", mtime=0), "compressed with gzip; end its name in .gz"),
        (bz2.compress(b"ts,k,v\n"), "compressed with bzip2; end its name in .bz2"),
        (zip_archive(), "a zip archive, as workbooks of Excel are; unpack it, or save the sheet as CSV"),
    ],
)
def test_what_is_not_text_is_named(file: Path, data: bytes, reason: str) -> None:
    assert read_text(file, data, columns=TEXT) == f"it is not text but {reason}"
    assert read_text(file, data, columns=TEXT, encoding="latin-1") == f"it is not text but {reason}"


def test_an_escape_stands_for_the_next_character_inside_of_quotes_only(file: Path) -> None:
    text = f'{T},1,"a\\"b\\\\"\n{T},2,a\\b\n'
    rows = [(AT, 1, 'a"b\\'), (AT, 2, "a\\b")]
    assert read_text(file, text, columns=TEXT, header=False, escape="\\") == rows
    assert "follows a closing quote" in read_text(file, text, columns=TEXT, header=False)


def test_local_times_are_read_as_duckdb_reads_them_but_those_left_out_are_refused(file: Path) -> None:
    twice = read_text(file, "ts,k,v\n2026-10-25 02:30:00,1,\n", timezone="Europe/Berlin")
    assert twice == [(dt.datetime(2026, 10, 25, 1, 30), 1, None)]
    offset = read_text(file, "ts,k,v\n2026-10-25 02:30:00+02:00,1,\n", timezone="Europe/Berlin")
    assert offset == [(dt.datetime(2026, 10, 25, 0, 30), 1, None)]
    far = read_text(file, "ts,k,v\n2038-07-01 02:30:00,1,\n", timezone="Europe/Berlin")
    assert far == [(dt.datetime(2038, 7, 1, 0, 30), 1, None)]
    never = read_text(file, "ts,k,v\n2026-03-29 02:30:00,1,\n", timezone="Europe/Berlin")
    assert never.startswith("row 1 (line 2), column \"ts\": '2026-03-29 02:30:00' is not a time")
    assert never.endswith("; clocks in Europe/Berlin are set forward past it")


@pytest.mark.parametrize(
    ("unit", "number"),
    [
        ("s", "1714550400.25"),
        ("ms", "1714550400250"),
        ("us", "1714550400250000"),
        ("ns", "1714550400250000999"),
    ],
)
def test_numbers_are_times_once_their_unit_is_declared(file: Path, unit: str, number: str) -> None:
    text = f"ts,k,v\n{number},1,\n"
    assert read_text(file, text, time_unit=unit) == [(AT + dt.timedelta(milliseconds=250), 1, None)]
    assert "(numbers since 1970 need time_unit: s, ms, us or ns)" in read_text(file, text)


def test_text_of_another_encoding_is_refused_with_the_line_and_a_guess(file: Path) -> None:
    text = f"ts,k,v\n{T},1,a\n{T},2,Zürich\n"
    found = read_text(file, text.encode("latin-1"), columns=TEXT)
    assert found == (
        "it is not UTF-8 text: line 3 holds the byte 0xfc; if the file has another encoding, declare it, "
        "such as encoding: cp1252"
    )
    assert read_text(file, text.encode("latin-1"), columns=TEXT, encoding="latin-1")[1] == (AT, 2, "Zürich")
    assert read_text(file, text.encode("utf-16"), columns=TEXT).endswith("encoding: utf-16")


@pytest.mark.parametrize("size", [2_500_000, 15_900_000])
def test_a_row_of_up_to_16_mb_is_read(file: Path, size: int) -> None:
    text = f"ts,k,trace,v\n{T},1,{'x' * size},a\n{T},2,short,b\n"
    assert read_text(file, text, columns=TEXT) == [(AT, 1, "a"), (AT, 2, "b")]


@pytest.mark.parametrize("size", [16_800_000, 17_000_000, 21_000_000])
def test_a_longer_row_is_named_with_the_limit(file: Path, size: int) -> None:
    text = f'ts,k,v\n{T},1,a\n{T},2,"{"x" * size}"\n{T},3,c\n'
    assert read_text(file, text, columns=TEXT) == (
        "row 2 (line 3) is longer than 16 MB, or a quote in it is never closed"
    )


def test_infinity_is_a_word_and_no_number(file: Path) -> None:
    rows = [f"{T},1,{value}" for value in ("inf", "-Infinity", "1e308")]
    found = read_text(file, "\n".join(["ts,k,v", *rows]))
    assert [row[2] for row in found] == [float("inf"), float("-inf"), 1e308]
    assert "'1e400' is not a number" in read_text(file, f"ts,k,v\n{T},1,1e400\n")
