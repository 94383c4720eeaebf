"""Skipped bad rows: the other rows are read as DuckDB reads them, the same each time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.store.store import Store
from catalog.values.stream import Column, Stream
from service.inputs.formats import text_input
from service.inputs.formats.conversion.options import MOST_NAMED
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane
from service.inputs.reading.read import read_partition
from service.inputs.sources.listed.files import list_files
from tests.examples import examples
from tests.service.inputs.streams import files_stream

DAY_US = 86_400_000_000

COLUMNS = (
    Column("ts", "timestamp"),
    Column("k", "bigint"),
    Column("m", "decimal(10,2)"),
    Column("s", "string"),
)
READERS = {
    "csv": "read_csv('{}', strict_mode = true, nullstr = '', allow_quoted_nulls = false, "
    "columns = {{ts: 'TIMESTAMP', k: 'BIGINT', "
    "m: 'DECIMAL(10,2)', s: 'VARCHAR'}}, auto_detect = false, header = true, delim = ',', quote = '\"', "
    "escape = '\"', new_line = '\\n')",
    "jsonl": "read_json('{}', format = 'newline_delimited', columns = {{ts: 'TIMESTAMP', k: 'BIGINT', "
    "m: 'DECIMAL(10,2)', s: 'VARCHAR'}})",
}
#: Why a row of the year 2999 is bad.
AHEAD = "more than 1d ahead of the clock; declare max_ahead: null in the stream if this is intended"
#: A row as it stands in the file, and what is wrong with it: None, or the column at fault ("" for none).
Written = tuple[str, str | None]


def csv_row(draw: random.Random, number: int) -> Written:
    second, key = f"2024-05-01 08:{number // 60 % 60:02}:{number % 60:02}", str(draw.randrange(-99, 99))
    money = draw.choice(["1.25", "-3", "99999999.99", ""])
    text = draw.choice(["plain", '"with, comma"', '"two\nlines"', '"said ""so"""', '""', "", 'inch " in it'])
    good = f"{second},{key},{money},{text}"
    return draw.choice(
        [
            *[(good, None)] * 6,
            (f"{second},{key}", ""),
            (f"{good},more,and more", ""),
            (f'{second},{key},{money},"text" behind', ""),
            (f'{second},{key},"1.25"x,"and, ""another""\nline"', ""),
            (f"{second},one,{money},{text}", "k"),
            (f"{second},{key},1.234,{text}", "m"),
            (f"yesterday,none,{money},{text}", "ts"),
            (f"2999-01-01,{key},{money},{text}", "ts"),
        ]
    )


def json_row(draw: random.Random, number: int) -> Written:
    second = f"2024-05-01 08:{number // 60 % 60:02}:{number % 60:02}"
    row = {"ts": second, "k": draw.randrange(-99, 99), "m": draw.choice([1.25, -3, None]), "s": "a\u2028b"}
    text = json.dumps(row, ensure_ascii=draw.random() < 0.5)
    return draw.choice(
        [
            *[(text, None)] * 6,
            (text[:-1], ""),
            (f"[{text}]", ""),
            (text[:-1] + ', "k": 2}', ""),
            (text[:-1] + ', "K": 2}', "k"),
            (json.dumps(row | {"k": "one"}), "k"),
            (json.dumps(row | {"k": [1], "s": 5}), "k"),
            (json.dumps(row | {"ts": "2024-13-01"}), "ts"),
            (json.dumps(row | {"ts": "2999-01-01"}), "ts"),
        ]
    )


def listed(store: Store, stream: Stream, letters: Path) -> Stream:
    stream = store.streams.add(replace(stream, on_error="skip-rows", max_ahead_us=DAY_US))
    list_files(store, stream, dead_letters=letters)
    return stream


def read_back(store: Store, stream: Stream, columns: list[str] | None = None) -> pa.Table:
    inputs = Inputs(store, None)
    (parts,) = inputs.partitions([(Lane(stream), 0, inputs.end(stream))])
    return pa.concat_tables([read_partition(stream, part, columns) for part in parts])


def letters_in(directory: Path) -> list[dict[str, Any]]:
    (file,) = directory.glob("*.jsonl")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]


@pytest.mark.parametrize(("file_format", "row_of"), [("csv", csv_row), ("jsonl", json_row)])
def test_what_is_read_of_text_is_what_duckdb_reads_of_its_good_rows(
    file_format: str,
    row_of: Callable[[random.Random, int], Written],
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = "ts,k,m,s\n" if file_format == "csv" else ""
    for seed in range(examples(60)):
        draw = random.Random(seed)
        rows = [row_of(draw, number) for number in range(draw.randrange(2, 60))]
        rows.append(_good(row_of, draw))
        here = tmp_path / str(seed)
        (here / "in").mkdir(parents=True)
        (here / "in" / f"1.{file_format}").write_text(
            head + "".join(f"{text}\n" for text, _ in rows), encoding="utf-8", newline=""
        )
        (here / "good").write_text(
            head + "".join(f"{text}\n" for text, fault in rows if fault is None), encoding="utf-8", newline=""
        )
        monkeypatch.setattr(text_input, "_BLOCK_BYTES", draw.choice([7, 64, 1 << 20]))
        stream = replace(files_stream(here / "in", file_format, COLUMNS), name=f"S{seed}")

        stream = listed(store, stream, here / "letters")

        (file,) = store.source_files.page(stream.id)
        bad = [(n, text, fault) for n, (text, fault) in enumerate(rows, start=1) if fault is not None]
        assert (file.verdict, file.reason, file.skipped) == ("ok", None, len(bad)), f"seed {seed}"
        expected = duckdb.sql(f"SELECT * FROM {READERS[file_format].format(here / 'good')}").fetchall()
        found = read_back(store, stream)
        assert [tuple(row.values())[:4] for row in found.to_pylist()] == expected, f"seed {seed}"
        assert found.equals(read_back(store, stream))  # a batch that is repeated
        assert read_back(store, stream, ["s"]).column("s").equals(found.column("s"))
        if bad:
            lines = head.count("\n") + 1
            letters = iter(letters_in(here / "letters"))
            for number, (text, fault) in enumerate(rows, start=1):
                if fault is not None:
                    letter = next(letters)
                    told = (letter["row"], letter["line"], letter["column"] or "", letter["text"])
                    assert told == (number, lines, fault, text), f"seed {seed}"
                    assert letter["reason"]
                lines += text.count("\n") + 1
            assert next(letters, None) is None


def _good(row_of: Callable[[random.Random, int], Written], draw: random.Random) -> Written:
    while (row := row_of(draw, 0))[1] is not None:
        pass
    return row


def test_what_is_read_of_parquet_is_what_duckdb_reads_of_its_good_rows(store: Store, tmp_path: Path) -> None:
    times = {"ts": 2**60, "ahead": round(datetime(2999, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000}
    for seed in range(examples(40)):
        draw = random.Random(seed)
        count = draw.randrange(1, 200)
        faults = [draw.choice([None] * 5 + ["ts", "s", "ahead"]) for _ in range(count)]
        texts = [b"\xff\xfe" if fault == "s" else b"plain" for fault in faults]
        table = pa.table(
            {
                "ts": pa.array([times.get(f, n) for n, f in enumerate(faults)]).cast(pa.timestamp("us")),
                "k": pa.array(range(count), pa.int32()),
                "m": pa.array([n / 4 for n in range(count)]).cast(pa.decimal128(10, 2)),
                "s": pa.array(texts, pa.binary()).view(pa.string()),
            }
        )
        here = tmp_path / str(seed)
        (here / "in").mkdir(parents=True)
        pq.write_table(table, here / "in" / "1.parquet", row_group_size=draw.choice([7, 64, 1000]))
        pq.write_table(table.filter(pa.array([f is None for f in faults])), here / "good")
        stream = replace(files_stream(here / "in", "parquet", COLUMNS), name=f"S{seed}")

        stream = listed(store, stream, here / "letters")

        expected = duckdb.sql(f"SELECT ts, k, m, s FROM read_parquet('{here / 'good'}')").fetchall()
        rows = read_back(store, stream).to_pylist() if expected else []
        assert [tuple(row.values())[:4] for row in rows] == expected, f"seed {seed}"
        bad = [(n, "s" if f == "s" else "ts") for n, f in enumerate(faults, start=1) if f is not None]
        if bad:
            letters = letters_in(here / "letters")
            assert [(letter["row"], letter["column"]) for letter in letters] == bad
            assert {letter["reason"] for letter in letters} <= {
                f"timestamp[us] {2**60} is outside the years 1 to 9999",
                "holds text that is not UTF-8",
                f"2999-01-01T00:00:00Z is {AHEAD}",
            }


@pytest.mark.parametrize(
    ("file_format", "content", "reason"),
    [
        (
            "csv",
            'ts,k,m,s\n2024-05-01,x,1,a\n2024-05-01,1,1,"never closed\n2024-05-01,1,1,b\n',
            "is never closed",
        ),
        ("csv", "ts,k,m\n2024-05-01,1,1\n", 'column "s" is missing; the header found is ts,k,m'),
        ("csv", b"ts,k,m,s\n2024-05-01,1,1,\xff\n", "it is not UTF-8 text: line 2"),
        ("jsonl", '{"k": 1}\n{"k": "x"}\n', 'no row has the event time "ts"'),
        ("parquet", b"PAR1 no more", "it is not a valid Parquet file"),
    ],
)
def test_a_file_whose_rows_cannot_be_told_apart_is_set_aside(
    store: Store, tmp_path: Path, file_format: str, content: str | bytes, reason: str
) -> None:
    (tmp_path / "in").mkdir()
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "in" / f"1.{file_format}").write_bytes(data)

    stream = listed(store, files_stream(tmp_path / "in", file_format, COLUMNS), tmp_path / "letters")

    (file,) = store.source_files.set_aside(stream.id)
    assert reason in str(file.reason)
    assert (file.rows, file.skipped) == (0, 0)
    assert not (tmp_path / "letters").exists()


@pytest.mark.parametrize(
    ("file_format", "header", "bad", "good"),
    [
        ("csv", "ts,k,m,s\n", "31.12.2025,1,1,a\n", "2025-12-31,1,1,a\n"),
        ("jsonl", "", '{"ts": "31.12.2025"}\n', '{"ts": "2025-12-31"}\n'),
    ],
)
def test_the_first_bad_rows_name_the_option_that_would_read_them(
    store: Store, tmp_path: Path, file_format: str, header: str, bad: str, good: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / f"1.{file_format}").write_text(header + bad * (MOST_NAMED + 2) + good)

    listed(store, files_stream(tmp_path / "in", file_format, COLUMNS), tmp_path / "letters")

    reasons = [letter["reason"] for letter in letters_in(tmp_path / "letters")]
    assert len(reasons) == MOST_NAMED + 2
    option = '; it can be read with timestamp_format: "%d.%m.%Y"'
    assert [reason.endswith(option) for reason in reasons] == [True] * MOST_NAMED + [False] * 2


@pytest.mark.parametrize(
    ("file_format", "place"), [("csv", "row 2 (line 3)"), ("jsonl", "row 2 (line 2)"), ("parquet", "row 2")]
)
def test_a_file_with_a_row_ahead_of_the_clock_is_refused_for_that_row(
    file_format: str, place: str, store: Store, tmp_path: Path
) -> None:
    days = ["1815-06-18", "2999-01-01", "2024-05-01", "3000-01-01"]
    path = tmp_path / f"1.{file_format}"
    if file_format == "csv":
        path.write_text("ts,k\n" + "".join(f"{day},1\n" for day in days))
    elif file_format == "jsonl":
        path.write_text("".join(f'{{"ts": "{day}", "k": 1}}\n' for day in days))
    else:
        times = pa.array(days).cast(pa.timestamp("us"))
        pq.write_table(pa.table({"ts": times, "k": pa.array([1] * len(days))}), path)
    bounded = files_stream(path, file_format, COLUMNS[:2])
    for max_ahead_us, reason in (
        (DAY_US, f'{place}, column "ts": 2999-01-01T00:00:00Z is {AHEAD}'),
        (None, None),
    ):
        stream = store.streams.add(replace(bounded, name=f"S{max_ahead_us}", max_ahead_us=max_ahead_us))
        list_files(store, stream)
        (file,) = store.source_files.page(stream.id)
        assert (file.reason, file.rows) == (reason, 0 if reason else 4)
