"""Queries, each of which is one bound window join.

The two sides of a bound query are called ``a`` and ``b`` in the order of its family: the stream with the
smaller id is ``a``; the sides of a self-join are in the order in which the text names them. SQL texts are in
the dialect of DuckDB, which evaluates the expressions: filters use bare quoted columns of their stream,
residual and outputs use ``a."column"`` and ``b."column"``.

A query never changes. A *series* is the sequence of queries that have had one name since the name was added.
Each of these queries has its own id, but clients see the series as one query. An update, a pause and a resume
continue the series; a removal ends it.

    add "q"        update "q"        pause "q"       resume "q"       remove "q"
      |-- id 3 ---------|-- id 5 --------|               |-- id 8 ----------|        series 3
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from catalog.values.groups.grouping import Grouping

#: Window of ``[RANGE UNBOUNDED]``: greater than every event time, and its sum with an event time fits int64.
UNBOUNDED_US = 2**61

#: Column of an intermediate (``catalog.steps``): oldest event time of the rows that a pair combines, µs UTC.
OLDEST = "oldest"

#: Name under which a family hands on the rank of a row whose stream has a window of rows; no stream can have
#: a column of this name.
RANK = "_rank"

Backfill = Literal["none", "state"]

#: Result column with which a query requests result punctuations, which are rows that name a key without later
#: results.
PUNCTUATION_OUTPUT = "_punctuation"

#: Clock that measures the windows of a side: µs of event time, rows of the stream, rows of equal key, or
#: steps of the column that orders the stream.
Clock = Literal["time", "rows", "key rows", "order"]

#: Kind of join. The matches of a query are the pairs that it would return as an inner join.
JoinKind = Literal["inner", "outer", "semi", "anti"]


def is_rank(column: str) -> bool:
    """Return whether a column of an intermediate is the rank of a row of one of its streams.

    >>> is_rank("a.b._rank"), is_rank("a.b.rank")
    (True, False)
    """
    return column.rpartition(".")[2] == RANK


def join_name(kind: JoinKind, preserved: tuple[Literal["a", "b"], ...]) -> str:
    """Return the name of a kind of join; left is side a, whichever side the query names first.

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
            (``catalog.values.groups.grouping``). It never raises: an evaluation error gives NULL.
        type: Canonical column type of the result (see ``catalog.values.stream``).
        columns: Columns that ``sql`` reads as (side, column), sorted; None if an older version stored the
            output without them. Ignored by equality.
    """

    name: str
    sql: str
    type: str
    columns: tuple[tuple[Literal["a", "b"], str], ...] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a query: a stream, its window and its filter.

    Attributes:
        stream_id: The stream.
        stream: Name of the stream.
        alias: Name under which the query refers to it.
        window_us: Window W of this side, µs, at least 1 (``[NOW]``). If the row of this side is older than
            its partner by d, the pair is in the window iff 0 <= d < window_us. If ``clock`` counts rows, this
            is a number of rows.
        filter: Canonical predicate over this side's columns, or None if there is no filter.
        filter_columns: Columns that the filter reads.
        columns: Columns that outputs, residual and filter read from stored rows.
        clock: Clock that measures the window. With ``rows`` the age of a row is the number of rows of its
            stream from the row to its partner; ``key rows`` counts only rows with the row's key.
        expires: For rows of an intermediate, pairs (column, µs). A row expires at the smallest sum of a
            column's value and its µs; it matches no row of the other side with a later event time
            (``catalog.steps``). The value of a rank column (``is_rank``) is instead compared with the number
            of rows that its stream has up to that time. Empty if the window alone decides when a row expires.
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
        id: Immutable id, never reused; results refer to the query by this id.
        name: Unique among running queries.
        cql: The text that the client sent.
        a: Side of the family's first stream.
        b: Side of the family's second stream.
        key: Equi-join columns as (column of a, column of b), in canonical order.
        key_types: Common type of each key pair.
        residual: Condition on both rows of a pair, or None if there is none.
        outputs: Result columns in select-list order.
        backfill: Whether the query also joins rows that were stored before its activation.
        kind: ``outer`` returns all matches, and each absent row of ``preserved`` with NULL for the other
            side. ``semi`` returns each row with a match once; ``anti`` returns each absent row once. A row is
            absent if it passes its side's filter and has no match.
        preserved: Sides whose rows the query checks for matches: no side for ``inner``, both sides for
            FULL (``outer`` or ``anti``), otherwise one side.
        grouping: How pairs are grouped into results; None if the results are pairs.
        left: Join whose pairs are the rows of side a, in a join of three or more streams
            (``catalog.steps``); None in a join of two streams.
        right: Join whose pairs are the rows of side b, if both sides of a step are pairs; None if side b is
            a stream.
        hands_on: Whether its pairs are input rows of a next step instead of results.
        rests: Whether the pairs of ``left`` are stored until they can join no later row. If False, the pairs
            are made again for each later row (``catalog.steps``).
        spreads: Whether the rows of a key are spread over several buckets: each row of the one preserved side
            is in one of these buckets, and all rows of the other side are in each of them
            (``operators.kernels.fragments``). Queries that spread rows in this way have their own family.
        beside_inner: Whether an outer, semi or anti join belongs to the family of the inner joins with its
            key. The query then shares the slices of the inner joins, and each key of the family has one
            bucket (``planner.families.families``).
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
        """Return whether its results include result punctuations."""
        return any(output.name == PUNCTUATION_OUTPUT for output in self.outputs)

    def needs_one_match(self, side: str) -> bool:
        """Return whether the query needs each row of a side only until the row's first match."""
        return self.kind in ("semi", "anti") and self.preserved == (side,)

    @property
    def counts_rows(self) -> bool:
        """Return whether a window counts rows."""
        return not {self.a.clock, self.b.clock}.isdisjoint(("rows", "key rows"))

    @property
    def clocks(self) -> tuple[Clock, Clock]:
        """Clocks that measure the windows of a and of b."""
        return self.a.clock, self.b.clock

    @property
    def ordered(self) -> bool:
        """Return whether it follows the order of both streams instead of windows of time or rows."""
        return self.a.clock == "order"

    def __post_init__(self) -> None:
        """Check that sides and kind fit together."""
        most = {"inner": 0, "outer": 2, "semi": 1, "anti": 2}[self.kind]
        if not (self.kind != "inner") <= len(self.preserved) <= most:
            raise ValueError(f"{self.kind} join that preserves {self.preserved}")
        if self.left is None and self.right is not None:
            raise ValueError("side b cannot consist of pairs if side a is a stream")
        if self.spreads and len(self.preserved) != 1:
            raise ValueError(f"rows of {self.preserved} cannot be spread over buckets")
        if self.beside_inner and (self.kind == "inner" or self.spreads):
            raise ValueError(f"{self.kind} join cannot be beside inner joins")


#: Reason why a query left the plan.
LeftBy = Literal["remove", "pause", "update"]

#: Only entry of ``QueryRecord.missing`` if the query joins no row from before its activation.
ALL_ROWS = "*"


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """A query that runs, has run, or is paused.

    Attributes:
        query: The bound query.
        added_version: Plan version that activated the query; 0 before activation.
        removed_version: First plan version without the query, or None while it runs. If the text of a paused
            query is changed, its new record is added and removed at the same version, so no plan has the new
            query.
        created_at_us: Wall clock when the query was added, µs UTC.
        removed_at_us: Wall clock when the query left the plan, or was removed while it was paused, µs UTC;
            None while it runs.
        series: Id of the first query of its series.
        left_by: Why the query left the plan; None while it runs.
        missing: Columns (``alias.column``) that the query reads but that rows stored before its activation
            lack, so that the query cannot join these rows. ``ALL_ROWS`` alone if it joins no earlier row.
        pause_reason: Why the engine paused the query; None if a person paused it, or if it is not paused.
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
        """Return whether the query should run."""
        return self.removed_version is None

    @property
    def paused(self) -> bool:
        """Return whether the query is paused; valid for the newest query of a series only."""
        return self.left_by == "pause"

    @property
    def entered(self) -> bool:
        """Return whether a plan version has the query; none has a query added by an update during a pause."""
        return self.removed_version != self.added_version

    @property
    def wanted(self) -> bool:
        """Return whether the query runs or is paused; valid for the newest query of a series only."""
        return self.running or self.paused
