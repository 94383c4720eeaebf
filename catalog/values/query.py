"""Queries: one bound window join each.

The two sides of a bound query are called ``a`` and ``b`` in the order of its family: the stream with the
smaller id is ``a``; a self-join keeps the order in which it was written. SQL texts are in DuckDB's
dialect, the engine's expression evaluator: filters over bare quoted columns of their stream, residual
and outputs over ``a."column"`` and ``b."column"``.

A query never changes. A query, as clients see it, is a *series*: the queries that had its name one after the
other since it was added, each with an id of its own. An update, a pause and a resume continue the series;
removing ends it.

    add "q"        update "q"        pause "q"       resume "q"       remove "q"
      |-- id 3 ---------|-- id 5 --------|               |-- id 8 ----------|        series 3
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from catalog.values.groups.grouping import Grouping

#: Window of ``[RANGE UNBOUNDED]``: beyond every event time, and a sum with one still fits int64.
UNBOUNDED_US = 2**61

#: Column of an intermediate (``catalog.steps``): the oldest event time of its rows, µs UTC.
OLDEST = "oldest"

#: Name under which a family hands on the rank of a row whose stream has a window of rows; no stream has such
#: a column.
RANK = "_rank"

Backfill = Literal["none", "state"]

#: Result column by which a query asks for result punctuations: rows that name a key without later results.
PUNCTUATION_OUTPUT = "_punctuation"

#: Clock that measures the windows of a side: µs of event time, rows of the stream, rows of equal key, or
#: steps of the column that orders the stream.
Clock = Literal["time", "rows", "key rows", "order"]

#: What a query gives of its matches, which are the pairs that it would give as an inner join.
JoinKind = Literal["inner", "outer", "semi", "anti"]


def is_rank(column: str) -> bool:
    """Return whether a column of an intermediate is the rank of a row of one of its streams.

    >>> is_rank("a.b._rank"), is_rank("a.b.rank")
    (True, False)
    """
    return column.rpartition(".")[2] == RANK


def join_name(kind: JoinKind, preserved: tuple[Literal["a", "b"], ...]) -> str:
    """Return what a join is called; left is side a, whatever was written first.

    >>> join_name("inner", ()), join_name("outer", ("a", "b")), join_name("anti", ("b",))
    ('inner', 'full outer', 'right anti')
    """
    side = {(): "", ("a",): "left ", ("b",): "right ", ("a", "b"): "full "}[preserved]
    return f"{side}{kind}"


@dataclass(frozen=True, slots=True)
class Output:
    """One column of a query's result.

    Attributes:
        name: Result column name, unique in the query.
        sql: Expression over ``a."column"`` and ``b."column"``, or over ``g."value"`` in a query with GROUP BY
            (``catalog.values.groups.grouping``); fails to NULL, never raises.
        type: Canonical column type of the result (see ``catalog.values.stream``).
        columns: Columns that ``sql`` reads as (side, column), sorted; None where it was stored by a version
            that did not say. No part of what it is, so two that differ in it alone are equal.
    """

    name: str
    sql: str
    type: str
    columns: tuple[tuple[Literal["a", "b"], str], ...] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Side:
    """One stream's part in a query.

    Attributes:
        stream_id: The stream.
        stream: Its name.
        alias: Name under which the query refers to it.
        window_us: W of this side, µs: a pair whose row of this side is older by d belongs to the
            query iff 0 <= d < window_us. At least 1 (``[NOW]``). A number of rows if ``clock`` says so.
        filter: Canonical predicate over this side's columns, or None.
        filter_columns: Columns the filter reads.
        columns: Columns that the query needs of a stored row: outputs, residual and filter.
        clock: Clock that measures the window. With ``rows`` the age of a row is the number of rows of its
            stream that come after it, up to the other row; ``key rows`` counts only those with its key.
        expires: Where the rows are those of an intermediate: each row meets no later row of the other side
            whose event time is above the least of these columns, each with µs added (``catalog.steps``).
            Ranks (``is_rank``) are compared with the number of rows that their stream has up to that time.
            Empty where the window alone says it.
    """

    stream_id: int
    stream: str
    alias: str
    window_us: int
    filter: str | None
    filter_columns: tuple[str, ...]
    columns: tuple[str, ...]
    clock: Clock = "time"
    expires: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """A bound continuous query.

    Attributes:
        id: Immutable, never reused; results name it.
        name: Unique among running queries.
        cql: The text as it was given.
        a: Side of the family's first stream.
        b: Side of the family's second stream.
        key: Equi-join columns as (column of a, column of b), in canonical order.
        key_types: Common type of each key pair.
        residual: Predicate on both rows, or None.
        outputs: Result columns in select-list order.
        backfill: Whether held rows from before the activation take part.
        kind: ``outer`` gives all matches and each absent row of ``preserved`` with the other side NULL,
            ``semi`` each row that has a match once, ``anti`` each absent row once. A row that passes its
            side's filter and has no match is absent.
        preserved: Sides whose rows are judged: one of them, both for FULL (``outer`` and ``anti``), none for
            ``inner``.
        grouping: Groups that are its results; None if its results are pairs.
        left: Join whose pairs are the rows of side a, in a join of three and more streams
            (``catalog.steps``); None in a join of two.
        right: Join whose pairs are the rows of side b, where both sides of a step are pairs; None where
            side b is a stream.
        hands_on: Whether its pairs are rows of a next step and not results.
        rests: Whether the pairs of ``left`` rest until they can meet no later row. If not, they are made
            again for the later rows (``catalog.steps``).
        spreads: Whether the buckets of a key share the rows of its one preserved side, and all of them have
            the other side's rows (``operators.kernels.fragments``). Such queries are a family of their own.
        beside_inner: Whether an outer, semi or anti join belongs to the family of the inner joins with its
            key. Then it shares their slices, and each key of the family has one bucket
            (``planner.families.families``).
    """

    id: int
    name: str
    cql: str
    a: Side
    b: Side
    key: tuple[tuple[str, str], ...]
    key_types: tuple[str, ...]
    residual: str | None
    outputs: tuple[Output, ...]
    backfill: Backfill = "none"
    kind: JoinKind = "inner"
    preserved: tuple[Literal["a", "b"], ...] = ()
    grouping: Grouping | None = None
    left: Query | None = None
    hands_on: bool = False
    rests: bool = True
    right: Query | None = None
    spreads: bool = False
    beside_inner: bool = False

    @property
    def announces(self) -> bool:
        """Return whether its results have result punctuations among them."""
        return any(output.name == PUNCTUATION_OUTPUT for output in self.outputs)

    def needs_one_match(self, side: str) -> bool:
        """Return whether it judges the rows of a side and needs each of them only until its first match."""
        return self.kind in ("semi", "anti") and self.preserved == (side,)

    @property
    def counts_rows(self) -> bool:
        """Return whether a window is of rows."""
        return not {self.a.clock, self.b.clock}.isdisjoint(("rows", "key rows"))

    @property
    def clocks(self) -> tuple[Clock, Clock]:
        """Clocks that measure the windows of a and of b."""
        return self.a.clock, self.b.clock

    @property
    def ordered(self) -> bool:
        """Whether it follows the order of both streams instead of windows of time or rows."""
        return self.a.clock == "order"

    def __post_init__(self) -> None:
        """Hold the preserved sides to the kind."""
        most = {"inner": 0, "outer": 2, "semi": 1, "anti": 2}[self.kind]
        if not (self.kind != "inner") <= len(self.preserved) <= most:
            raise ValueError(f"{self.kind} join that preserves {self.preserved}")
        if self.left is None and self.right is not None:
            raise ValueError("side b is pairs of a step, and side a is a stream")
        if self.spreads and len(self.preserved) != 1:
            raise ValueError(f"rows of {self.preserved} cannot be spread over buckets")
        if self.beside_inner and (self.kind == "inner" or self.spreads):
            raise ValueError(f"{self.kind} join cannot be beside inner joins")


#: Why a query left the plan.
LeftBy = Literal["remove", "pause", "update"]

#: In place of missing columns: no row from before the activation takes part at all.
ALL_ROWS = "*"


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """A query that runs, ran, or waits paused.

    Attributes:
        query: The bound query.
        added_version: Plan version that activated it; 0 before one is set.
        removed_version: First plan version without it, or None while it runs. A paused query whose text is
            changed gets a record that leaves with the version it comes with: no plan has it.
        created_at_us: Wall clock when it was added, µs UTC.
        removed_at_us: Wall clock when it left, or was removed while it was paused, µs UTC, or None.
        series: Id of the first query of its series.
        left_by: Why it left; None while it runs.
        missing: Columns (``alias.column``) that earlier rows had not kept when it came, so that those rows
            cannot take part; ``ALL_ROWS`` alone if no earlier row takes part.
        pause_reason: Why the engine paused it; None where a person did, or it is not paused.
    """

    query: Query
    added_version: int
    removed_version: int | None
    created_at_us: int
    removed_at_us: int | None
    series: int
    left_by: LeftBy | None
    missing: tuple[str, ...]
    pause_reason: str | None = None

    @property
    def running(self) -> bool:
        """Return whether the query is desired to run."""
        return self.removed_version is None

    @property
    def paused(self) -> bool:
        """Return whether the query is paused, if it is the newest of its series."""
        return self.left_by == "pause"

    @property
    def entered(self) -> bool:
        """Return whether any plan version has had the query; none has if it was replaced while paused."""
        return self.removed_version != self.added_version

    @property
    def wanted(self) -> bool:
        """Return whether its name is taken, if it is the newest of its series."""
        return self.running or self.paused
