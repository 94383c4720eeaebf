"""The oracle: what a workload must give, by DuckDB joins over the whole input (design.md, section 1).

Nothing here knows slices, buckets or routes. Three facts are simulated batch by batch, because the contract
speaks of batches; everything else is one SQL join per query:

* which file is in which batch: files in name order, ``max_files_per_batch`` each, from the first batch in
  which some query uses the stream;
* which rows are late: ``T < wm_S`` at the start of the row's batch, ``wm_S = max(T seen) - L``;
* which earlier rows a query with ``backfill: state`` may use (*held* rows): those that some query of the plan
  in force before, entitled to them, passes through its filter and still reaches.

``tests.oracle_naive`` says the same by nested loops in Python; ``tests/test_oracle.py`` compares both.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.workload_spec import QuerySpec, SideName, Step, WorkloadSpec, text

Files = Mapping[str, Sequence[pa.Table]]
FamilySide = Literal["a", "b"]
#: Streams, key, and whether its queries ask about absence.
FamilyKey = tuple[int, int, frozenset[tuple[str, str]], bool]

FILE_STRIDE = 2**32


class UndecidedError(Exception):
    """The design leaves the answer to the engine; a generated workload must avoid it."""


@dataclass(frozen=True, slots=True)
class Life:
    """A query's time in force: batches ``[added, removed)``.

    Attributes:
        number: Order in which it came.
        query: The query.
        added: First batch.
        removed: First batch without it, or None.
        swapped: True if the family's side a is the right stream (side a has the smaller stream id).
        family: Stream numbers and key, as the family has them.
    """

    number: int
    query: QuerySpec
    added: int
    removed: int | None
    swapped: bool
    family: FamilyKey

    def at(self, batch: int) -> bool:
        """Return whether it is in force in ``batch``."""
        return self.added <= batch and (self.removed is None or batch < self.removed)

    def written(self, side: FamilySide) -> SideName:
        """Return which written side the family's side is."""
        return "l" if (side == "a") != self.swapped else "r"


@dataclass(frozen=True, slots=True, eq=False)
class StreamHistory:
    """What one stream brought.

    Attributes:
        rows: Its rows with ``_pos``, ``_batch``, ``_late`` and ``_t`` (µs UTC, null without an event time).
        watermarks: Watermark at the end of each batch, None before the first row.
    """

    rows: pa.Table
    watermarks: tuple[int | None, ...]

    @property
    def late_rows(self) -> int:
        """Rows below the watermark at the start of their batch."""
        return int(pc.sum(self.rows["_late"]).as_py() or 0)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The run as the contract sees it: batches, queries in force, rows with batch and lateness."""

    batches: int
    lives: tuple[Life, ...]
    streams: Mapping[str, StreamHistory]

    @property
    def input_rows(self) -> int:
        """Rows of every stream that flows."""
        return sum(s.rows.num_rows for s in self.streams.values())

    @property
    def late_rows(self) -> int:
        """Late rows of every stream that flows."""
        return sum(s.late_rows for s in self.streams.values())


def _family(workload: WorkloadSpec, query: QuerySpec) -> tuple[FamilyKey, bool]:
    names = [s.name for s in workload.streams]
    left, right = names.index(query.left.stream), names.index(query.right.stream)
    swapped = left > right
    key = frozenset((y, x) if swapped else (x, y) for x, y in query.key)
    return (min(left, right), max(left, right), key, query.kind != "inner"), swapped


@dataclass(slots=True)
class _Names:
    """What each name means as a script goes on, and each stay of a query in the plan: from, until.

    An update is leave-and-enter at one boundary, and so are a pause and its resumption at two.
    """

    running: dict[str, int] = field(default_factory=dict)
    paused: dict[str, QuerySpec] = field(default_factory=dict)
    stays: list[tuple[QuerySpec, int, int | None]] = field(default_factory=list)

    def enter(self, query: QuerySpec, batch: int) -> None:
        self.running[query.name] = len(self.stays)
        self.stays.append((query, batch, None))

    def leave(self, name: str, batch: int) -> QuerySpec:
        number = self.running.pop(name)
        query, since, _ = self.stays[number]
        self.stays[number] = (query, since, batch)
        return query

    def change(self, step: Step, batch: int) -> None:
        if step.add is not None:
            self.enter(step.add, batch)
        elif step.remove is not None:
            if self.paused.pop(step.remove, None) is None:
                self.leave(step.remove, batch)
        elif step.update is not None:
            if step.update.name in self.paused:
                self.paused[step.update.name] = step.update
            else:
                self.leave(step.update.name, batch)
                self.enter(step.update, batch)
        elif step.pause is not None:
            self.paused[step.pause] = self.leave(step.pause, batch)
        elif step.resume is not None:
            self.enter(replace(self.paused.pop(step.resume), backfill="state"), batch)

    def streams(self) -> Iterator[str]:
        """Yield the streams of the queries that run."""
        for number in self.running.values():
            query = self.stays[number][0]
            yield from (query.left.stream, query.right.stream)


def replay(workload: WorkloadSpec, files: Files) -> History:
    """Simulate batches, plan changes, watermarks and lateness.

    Args:
        workload: The workload.
        files: Tables of each stream's files in name order, in canonical column types.

    Raises:
        UndecidedError: A change at the very end of the input would alone make a batch.
    """
    first: dict[str, int] = {}
    batches = {s.name: -(-len(files[s.name]) // s.max_files_per_batch) for s in workload.streams}
    names = _Names()
    for query in workload.queries:
        names.enter(query, 0)
        first |= {query.left.stream: 0, query.right.stream: 0}
    n = 0
    while any(n < start + batches[name] for name, start in first.items()):
        for step in (s for s in workload.script if s.at_batch == n):
            names.change(step, n)
            for name in names.streams():
                first.setdefault(name, n)
        n += 1
    if any(s.at_batch == n for s in workload.script):
        raise UndecidedError(f"a change at batch {n} comes right after the last input")
    lives = []
    for number, (query, at, until) in enumerate(names.stays):
        family, swapped = _family(workload, query)
        lives.append(Life(number, query, at, until, swapped, family))
    streams = {
        s.name: _stream_history(workload, s.name, files[s.name], first[s.name], n)
        for s in workload.streams
        if s.name in first
    }
    return History(n, tuple(lives), streams)


def _stream_history(
    workload: WorkloadSpec, name: str, files: Sequence[pa.Table], start: int, batches: int
) -> StreamHistory:
    spec = workload.stream(name)
    watermarks: list[int | None] = []
    parts: list[pa.Table] = []
    seen: int | None = None
    for batch in range(batches):
        watermark = None if seen is None else seen - spec.lateness_us
        begin = (batch - start) * spec.max_files_per_batch
        for i in range(max(begin, 0), max(min(begin + spec.max_files_per_batch, len(files)), 0)):
            table = files[i]
            t = table[spec.event_time].cast(pa.timestamp("us")).cast(pa.int64()).combine_chunks()
            late = pc.fill_null(pc.less(t, watermark), False) if watermark is not None else None
            rows = table.num_rows
            parts.append(
                table.append_column("_pos", pa.array(i * FILE_STRIDE + np.arange(rows, dtype=np.int64)))
                .append_column("_batch", pa.array(np.full(rows, batch, dtype=np.int64)))
                .append_column("_t", t)
                .append_column("_late", late if late is not None else pa.array(np.zeros(rows, dtype=bool)))
            )
            newest = pc.max(t).as_py()
            seen = newest if seen is None else seen if newest is None else max(seen, newest)
        watermarks.append(None if seen is None else seen - spec.lateness_us)
    return StreamHistory(pa.concat_tables(parts), tuple(watermarks))


def check_columns(history: History, life: Life, side: FamilySide) -> None:
    """Refuse a ``backfill: state`` query that needs a column which a plan before did not keep.

    Raises:
        UndecidedError: What the state then still knows is up to the engine.
    """
    needed = life.query.needed(life.written(side))
    for batch in range(life.added - 1, -1, -1):
        peers = [p for p in history.lives if p.family == life.family and p.at(batch)]
        if not peers:
            return
        kept = frozenset[str]().union(*(p.query.needed(p.written(side)) for p in peers))
        if missing := needed - kept:
            raise UndecidedError(f"{life.query.name} needs {sorted(missing)}, not kept in batch {batch}")


class Oracle:
    """Expected results of every query of a workload.

    Args:
        workload: The workload.
        files: Tables of each stream's files in name order.
    """

    def __init__(self, workload: WorkloadSpec, files: Files) -> None:
        self.workload = workload
        self.history = replay(workload, files)
        self._db = duckdb.connect()
        self._db.execute("SET TimeZone = 'UTC'")
        for name, stream in self.history.streams.items():
            self._db.register(f"in_{name}", stream.rows)
            self._db.execute(
                f"CREATE TABLE s_{name} AS SELECT * FROM in_{name} WHERE NOT _late AND _t IS NOT NULL"
            )
        for life in sorted(self.history.lives, key=lambda x: (x.added, x.number)):
            if life.query.backfill == "state":
                for side in _SIDES:
                    check_columns(self.history, life, side)
                    self._hold(life, side)

    def lives(self, name: str) -> tuple[Life, ...]:
        """Return the stays of a name in the plan, one after the other."""
        return tuple(x for x in self.history.lives if x.query.name == name)

    def queries(self) -> Iterator[str]:
        """Yield the names of all queries that were ever in force."""
        yield from dict.fromkeys(life.query.name for life in self.history.lives)

    def revisions(self, name: str) -> list[pa.Table]:
        """Return a query's results in order: selected columns, then ``_event_time``.

        An update may change the columns: one table for each run of stays with the same ones.
        """
        tables = [self.pairs(x).drop_columns(["_batch", "_pos_a", "_pos_b"]) for x in self.lives(name)]
        return runs_of_one_schema(tables)

    def results(self, name: str) -> pa.Table:
        """Return the results of a query whose columns never changed, in order."""
        (table,) = self.revisions(name)
        return table

    def counts(self) -> dict[str, int]:
        """Return the number of results of every query."""
        return {name: sum(self.pairs(x).num_rows for x in self.lives(name)) for name in self.queries()}

    def distinct_pairs(self) -> int:
        """Return how many pairs are joined at all: what a shared result store holds."""
        families: dict[FamilyKey, set[tuple[int, int]]] = {}
        for life in self.history.lives:
            pairs = self.pairs(life)
            both = zip(pairs["_pos_a"].to_pylist(), pairs["_pos_b"].to_pylist(), strict=True)
            both = (pair for pair in both if None not in pair)
            families.setdefault(life.family, set()).update(both)
        return sum(len(f) for f in families.values())

    def _hold(self, life: Life, side: FamilySide) -> None:
        """Create the table of the rows that are held for ``life`` at its activation."""
        mine = life.query.side(life.written(side)).stream
        other = life.query.side(life.written("b" if side == "a" else "a")).stream
        watermark = self.history.streams[other].watermarks[life.added - 1] if life.added else None
        peers = [p for p in self.history.lives if p.family == life.family and p.at(life.added - 1)]
        cases = ["FALSE"]
        for peer in peers:
            spec = peer.query.side(peer.written(side))
            filters = [text(f, {"l": "", "r": ""}, guarded=True) for f in spec.filters]
            if watermark is not None and spec.window_us is not None:
                filters.append(f"_t + {spec.window_us} > {watermark}")
            cases.append(" AND ".join([self._entitled(peer, side, ""), *filters]))
        self._db.execute(
            f"CREATE TABLE held_{life.number}_{side} AS SELECT _pos FROM s_{mine} "
            f"WHERE _batch < {life.added} AND ({' OR '.join(f'({c})' for c in cases)})"
        )

    def _entitled(self, life: Life, side: FamilySide, prefix: str) -> str:
        own = f"{prefix}_batch >= {life.added}"
        if life.query.backfill == "none":
            return own
        return f"({own} OR {prefix}_pos IN (SELECT _pos FROM held_{life.number}_{side}))"

    def pairs(self, life: Life) -> pa.Table:
        """Return the results of one stay with their batch and positions, in order.

        Of a row without a partner, and of a row of a semi join, the other position is NULL. Rows that came
        before the stay are not judged for absence: what partners they had nobody noted.
        """
        parts = {
            "inner": [self._matches(life)],
            "outer": [self._matches(life), *(self._absent(life, side) for side in life.query.preserved)],
            "semi": [self._firsts(life, side) for side in life.query.preserved],
            "anti": [self._absent(life, side) for side in life.query.preserved],
        }[life.query.kind]
        return self._db.sql(
            f"SELECT * FROM ({' UNION ALL '.join(parts)}) ORDER BY _batch, _event_time, _pos_a, _pos_b"
        ).to_arrow_table()

    def _matches(self, life: Life) -> str:
        """Return the query of all matches: of an inner join the results."""
        query = life.query
        prefix: dict[SideName, str] = {"l": "l.", "r": "r."}
        a, b = life.written("a"), life.written("b")
        where = [
            text(e, prefix, guarded=True)
            for e in (*query.left.filters, *query.right.filters, *query.residual)
        ]
        where += [self._entitled(life, "a", f"{a}."), self._entitled(life, "b", f"{b}.")]
        where.append(f"greatest(l._batch, r._batch) >= {life.added}")
        if life.removed is not None:
            where.append(f"greatest(l._batch, r._batch) < {life.removed}")
        windows = [
            f"({y}._t - {x}._t >= 0" + (f" AND {y}._t - {x}._t < {w})" if w is not None else ")")
            for x, y, w in (("l", "r", query.left.window_us), ("r", "l", query.right.window_us))
        ]
        return (
            f"SELECT {self._outputs(life)}make_timestamp(greatest(l._t, r._t)) AS _event_time, "
            f"greatest(l._batch, r._batch) AS _batch, {a}._pos AS _pos_a, {b}._pos AS _pos_b "
            f"FROM s_{query.left.stream} l JOIN s_{query.right.stream} r "
            f"ON {' AND '.join(f'l.{x} = r.{y}' for x, y in query.key)} "
            f"WHERE ({' OR '.join(windows)}) AND {' AND '.join(where)}"
        )

    def _outputs(self, life: Life) -> str:
        prefix: dict[SideName, str] = {"l": "l.", "r": "r."}
        return "".join(f"{text(e, prefix, guarded=True)} AS {n}, " for n, e in life.query.outputs)

    def _rows(self, life: Life, side: SideName, what: str, where: Sequence[str]) -> str:
        """Return the query of results that are rows of one side alone."""
        kept, other = life.query.side(side), "r" if side == "l" else "l"
        streams = {
            side: f"s_{kept.stream}",
            other: f"(SELECT * FROM s_{life.query.side(other).stream} WHERE FALSE)",
        }
        filters = [text(f, {"l": "l.", "r": "r."}, guarded=True) for f in kept.filters]
        positions = (
            f"{x}._pos AS _pos_{name}" if x == side else f"NULL::BIGINT AS _pos_{name}"
            for name, x in (("a", life.written("a")), ("b", life.written("b")))
        )
        return (
            f"SELECT {self._outputs(life)}{what}, {', '.join(positions)} "
            f"FROM {streams[side]} {side} LEFT JOIN {streams[other]} {other} ON TRUE "
            f"WHERE {' AND '.join([*where, *filters]) or 'TRUE'}"
        )

    def _matched(self, life: Life, side: SideName, what: str) -> str:
        """Return a query over the matches of the row ``side`` of a query around it."""
        name = "a" if life.written("a") == side else "b"
        return f"(SELECT {what} FROM ({self._matches(life)}) m WHERE m._pos_{name} = {side}._pos)"

    def _firsts(self, life: Life, side: SideName) -> str:
        """Return the query of the rows of a semi join: each with the batch and time of its first match."""
        first = self._matched(life, side, "min(struct_pack(b := m._batch, t := m._event_time))")
        what = f"({first}).t AS _event_time, ({first}).b AS _batch"
        return self._rows(life, side, what, [f"{first} IS NOT NULL"])

    def _absent(self, life: Life, side: SideName) -> str:
        """Return the query of the rows of a side that the other stream has passed without a match."""
        other: SideName = "r" if side == "l" else "l"
        window = life.query.side(side).window_us
        if window is None:
            return self._rows(life, side, "NULL::TIMESTAMP AS _event_time, 0::BIGINT AS _batch", ["FALSE"])
        watermarks = self.history.streams[life.query.side(other).stream].watermarks
        known = [f"({n}, {w})" for n, w in enumerate(watermarks) if w is not None] or ["(0, NULL::BIGINT)"]
        passed = f"(SELECT min(n) FROM (VALUES {', '.join(known)}) w(n, wm) WHERE wm >= {side}._t + {window})"
        batch = f"CASE WHEN {passed} IS NOT NULL THEN greatest({side}._batch, {passed})::BIGINT END"
        where = [
            f"{side}._batch >= {life.added}",
            f"{batch} >= {life.added}",
            f"{batch} < {self.history.batches if life.removed is None else life.removed}",
            f"NOT EXISTS {self._matched(life, side, '1')}",
        ]
        return self._rows(
            life, side, f"make_timestamp({side}._t + {window}) AS _event_time, {batch} AS _batch", where
        )


def runs_of_one_schema(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Put neighbouring tables of the same columns together."""
    return [pa.concat_tables(run) for _, run in itertools.groupby(tables, key=lambda table: table.schema)]


_SIDES: tuple[FamilySide, FamilySide] = ("a", "b")
