"""Joins of several streams: run by the operators, and by one DuckDB join over all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
import numpy as np
import pyarrow as pa

from catalog.columns.arrow_types import arrow_type
from catalog.steps import is_exchanged, side_streams
from catalog.values.query import Query
from catalog.values.stream import Stream
from operators.bucket.batch_output import BatchOutput
from planner.families.families import family_of
from service.results.result_sql import pairs_sql, results_sql
from tests.builders import a_stream
from tests.operators.durable import DurableRunner
from tests.operators.harness import Runner

SECOND_US = 1_000_000
NAMES = "ABCDEFGH"

#: A result: numbers of its rows, in the order of FROM.
Combination = tuple[int, ...]


def stream(number: int, key: str = "bigint", lateness_us: int = 0) -> Stream:
    """Return a stream whose column ``r`` numbers its rows."""
    columns = (("k", key), ("g", "int"), ("v", "double"), ("r", "bigint"), ("j", key))
    return a_stream(number, lateness_us, columns)


def rows(
    rng: np.random.Generator, of: Stream, count: int, span_s: int, disorder_s: int, keys: int
) -> pa.Table:
    """Return rows whose times ascend but for some disorder, with ties and NULLs."""
    times = np.sort(rng.integers(0, span_s, count)) - rng.integers(0, disorder_s + 1, count)
    key = rng.integers(0, keys, count)
    kind = next(column.type for column in of.columns if column.name == "k")
    values = [f"key {k}" for k in key] if kind == "string" else key
    null = rng.random(count) < 0.05

    def keyed(values: Sequence[object]) -> pa.Array:
        return pa.array([None if n else v for n, v in zip(null, values, strict=True)], arrow_type(kind))

    return pa.table(
        {
            "ts": pa.array(times * SECOND_US, pa.timestamp("us")),
            "k": keyed(values),
            "g": pa.array(rng.integers(0, 2, count), pa.int32()),
            "v": pa.array(rng.integers(0, 10, count) / 10, pa.float64()),
            "r": pa.array(np.arange(count), pa.int64()),
            "j": keyed(list(reversed(values))),
            "_pos": pa.array(np.arange(count), pa.int64()),
        }
    )


@dataclass(frozen=True, slots=True)
class Written:
    """A query as written, and the batches in which it runs.

    Attributes:
        streams: Numbers of its streams, in the order of FROM; their aliases are ``s0``, ``s1``, ...
        windows_s: Windows of these.
        conditions: Conditions of its WHERE.
        since: First batch.
        until: Batch from which on it is gone.
    """

    streams: tuple[int, ...]
    windows_s: tuple[int, ...]
    conditions: tuple[str, ...]
    since: int = 0
    until: int = 1 << 30

    @property
    def cql(self) -> str:
        """The text."""
        sources = ", ".join(
            f"{NAMES[number - 1]} [RANGE {window} SECONDS] s{n}"
            for n, (number, window) in enumerate(zip(self.streams, self.windows_s, strict=True))
        )
        selected = ", ".join(f"s{n}.r AS r{n}" for n in range(len(self.streams)))
        return f"SELECT {selected} FROM {sources} WHERE {' AND '.join(self.conditions)}"

    def sql(self, bound: Query | None = None) -> str:
        """The text over tables of the streams' names, with the rule of each pair of streams.

        Args:
            bound: The bound query, where its steps may be apart in time.
        """
        pairs = []
        for j, behind in enumerate(self.windows_s):
            for i, ahead in enumerate(self.windows_s[:j]):
                d = f"(epoch_us(s{j}.ts) - epoch_us(s{i}.ts))"
                inside = f"{d} >= 0 AND {d} < {ahead * SECOND_US} OR {d} <= 0 AND -{d} < {behind * SECOND_US}"
                pairs.append(f"({inside})")
        sources = ", ".join(f"{NAMES[number - 1]} s{n}" for n, number in enumerate(self.streams))
        selected = ", ".join(f"s{n}.r" for n in range(len(self.streams)))
        alive = [
            f"s{n}.batch >= {self.since} AND s{n}.batch < {self.until}" for n in range(len(self.streams))
        ]
        conditions = " AND ".join([*self.conditions, *pairs, *alive, *self._in_time(bound)])
        return f"SELECT {selected} FROM {sources} WHERE {conditions}"

    def _in_time(self, bound: Query | None) -> list[str]:
        """Return the condition that the last step of a combination runs before the query is gone.

        Each exchange takes a combination to the next batch.
        """
        return [] if bound is None else [f"{_batch_of(bound)} < {self.until}"]


def _batch_of(query: Query) -> str:
    """Return the batch in which a combination of a query's rows is made, as SQL."""
    sides = []
    for side, joined in ((query.a, query.left), (query.b, query.right)):
        if joined is None:
            sides.append(f"{side.alias}.batch")
        else:
            sides.append(f"{_batch_of(joined)} + {int(is_exchanged(side.stream_id))}")
    return f"greatest({', '.join(sides)})"


@dataclass
class Recorder(Runner):
    """A runner that keeps the results of every batch."""

    outputs: list[BatchOutput] = field(default_factory=list)

    def _count(self, output: BatchOutput) -> None:
        super()._count(output)
        self.outputs.append(output)

    def rows_of(self, query: Query) -> Counter[Combination]:
        """Return the results of a query."""
        family = family_of(query)
        made = [output for output in self.outputs if family in output.results]
        members = [output.routes[family].table().ids() for output in made]
        routes = {str(route) for each in members for route, ids in each.items() if query.id in ids}
        if not routes:
            return Counter()
        tables = [pa.Table.from_batches([output.results[family]]) for output in made]
        a, b = side_streams(query, self.streams.__getitem__)
        pairs = f"({pairs_sql(a, b, [])} UNION ALL BY NAME SELECT * FROM made)"
        with duckdb.connect() as duck:
            duck.register("made", pa.concat_tables(tables, promote_options="default"))
            return Counter(duck.sql(results_sql(query, pairs, ", ".join(routes), besides=())).fetchall())


@dataclass
class DurableRecorder(DurableRunner, Recorder):
    """A recorder whose buckets crash."""


def expected(
    written: Written,
    tables: Mapping[int, pa.Table],
    batches: Mapping[int, Sequence[int]],
    late: Mapping[int, set[int]],
    bound: Query | None = None,
) -> Counter[Combination]:
    """Return the results of a query over whole tables, without late rows.

    Args:
        written: The query.
        tables: Rows by number of the stream.
        batches: Batch of each row.
        late: Numbers of the rows that came late.
        bound: The bound query, where its steps may be apart in time.
    """
    with duckdb.connect() as duck:
        for number, table in tables.items():
            punctual = [r not in late.get(number, ()) for r in table.column("r").to_pylist()]
            given = table.append_column("batch", pa.array(batches[number], pa.int64())).filter(
                pa.array(punctual, pa.bool_())
            )
            duck.register(NAMES[number - 1], given)
        return Counter(duck.sql(written.sql(bound)).fetchall())
