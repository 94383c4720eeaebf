"""Result fixtures in the manner of sqllogictest: rows in, a query, rows out.

    # Why the case stands here.
    stream A (k bigint, v double)
    2026-01-01 00:00:01,1,0.5

    query rowsort
    SELECT a.v FROM A [RANGE 1 SECOND] a, ...
    ----
    0.5

A stream's rows are CSV: event time, then its columns; an empty field is NULL. The event time is ``ts``, or
what ``stream A (k bigint) by _event_time`` says. No row is late, and all streams have ended, so that rows
without a partner are results. Expected values are DuckDB's, NULL as
``NULL``; ``rowsort`` compares them in any order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from catalog.columns.arrow_types import canonical_type
from catalog.values.stream import Column, HttpSource, Stream

#: No row of a fixture is older than the newest one by so much.
LATENESS_US = 366 * 86_400 * 1_000_000

_STREAM = re.compile(r"stream (\w+) \((.*)\)(?: by (\w+))?")


@dataclass(frozen=True, slots=True)
class Case:
    """A query over the streams of its file.

    Attributes:
        line: Line of the query.
        cql: Its text.
        rows: Expected rows, sorted.
    """

    line: int
    cql: str
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A fixture: streams with their rows, and queries with theirs.

    Attributes:
        streams: Streams by name.
        tables: Rows of each stream by its name, in order of arrival, with ``_pos``.
        cases: The queries.
    """

    streams: Mapping[str, Stream]
    tables: Mapping[str, pa.Table]
    cases: tuple[Case, ...]


def read(path: Path) -> ResultFile:
    """Read a fixture.

    Raises:
        ValueError: A block is neither a stream nor a query; the message has its file and line.
    """
    streams: dict[str, Stream] = {}
    tables: dict[str, pa.Table] = {}
    cases: list[Case] = []
    for line, block in _blocks(path):
        if (found := _STREAM.fullmatch(block[0])) is not None:
            named = (part.strip().rsplit(" ", 1) for part in _parts(found[2]))
            columns = [Column(name, canonical_type(kind)) for name, kind in named]
            event_time = found[3] or "ts"
            columns.insert(0, Column(event_time, "timestamp"))
            stream = Stream(len(streams) + 1, found[1], tuple(columns), event_time, LATENESS_US, HttpSource())
            streams[stream.name] = stream
            tables[stream.name] = _table(stream, block[1:])
        elif block[0] == "query rowsort":
            split = block.index("----")
            cases.append(Case(line, "\n".join(block[1:split]), tuple(sorted(block[split + 1 :]))))
        else:
            raise ValueError(f'{path}:{line}: expected "stream NAME (...)" or "query rowsort"')
    return ResultFile(streams, tables, tuple(cases))


def written(rows: Sequence[Sequence[object]]) -> tuple[str, ...]:
    """Return rows of DuckDB's values as a fixture has them, sorted."""
    return tuple(sorted(",".join("NULL" if value is None else str(value) for value in row) for row in rows))


def _blocks(path: Path) -> list[tuple[int, list[str]]]:
    """Return the blocks between empty lines, without comments, each with its first line's number."""
    blocks: list[tuple[int, list[str]]] = []
    fresh = True
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not text.strip():
            fresh = True
        elif not text.startswith("#"):
            if fresh:
                blocks.append((number, []))
            blocks[-1][1].append(text)
            fresh = False
    return blocks


def _parts(columns: str) -> list[str]:
    """Split column definitions at commas outside parentheses."""
    return re.split(r",\s*(?![^(]*\))", columns)


def _table(stream: Stream, lines: Sequence[str]) -> pa.Table:
    fields = [line.split(",") for line in lines]
    assert all(len(row) == len(stream.columns) for row in fields), f"a row of {stream.name} has other columns"
    selected = ", ".join(
        f"CAST(nullif(row[{n}], '') AS {column.type}) AS \"{column.name}\""
        for n, column in enumerate(stream.columns, 1)
    )
    with duckdb.connect() as duck:
        duck.execute("CREATE TABLE given (pos BIGINT, row VARCHAR[])")
        for position, row in enumerate(fields):
            duck.execute("INSERT INTO given VALUES (?, ?)", [position, row])
        return duck.sql(f"SELECT {selected}, pos AS _pos FROM given ORDER BY pos").to_arrow_table()
