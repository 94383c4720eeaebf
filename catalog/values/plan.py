"""Plans: the families of queries and their slice chains.

A plan is a value: the same queries give the same plan, in whatever order they were added. Filter bits
and query activations are the only parts that depend on history; they are carried over from the previous plan.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from catalog.values.groups.grouping import Grouping
from catalog.values.policies.memory import Memory
from catalog.values.policies.probe import Probe
from catalog.values.policies.punctuation_policy import PunctuationPolicy, PurgePrices
from catalog.values.query import OLDEST, PUNCTUATION_OUTPUT, Backfill, Clock, JoinKind, Output, is_rank
from catalog.values.stream import Stream

Strategy = Literal["unshared", "pullup", "pushdown", "mem-opt", "cpu-opt"]

#: Buckets that share the rows of a key: one (``hash``), all (``replicate``), or as the planner decides
#: (``auto``).
Partitioning = Literal["auto", "hash", "replicate"]

#: Id of the join that all queries of a family share, if they share one.
SHARED_JOIN = "shared"
#: Number of fragments of a key whose rows all buckets share, however many buckets there are.
ALL_BUCKETS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Threshold:
    """A filter that compares a column with a number.

    Attributes:
        column: The column.
        operator: Comparison, column on the left and number on the right.
        number: The number, as an int if it is whole. It has at most 15 digits, so that decimal and double
            represent the same value.
    """

    column: str
    operator: Literal["<", "<=", ">", ">="]
    number: int | float


@dataclass(frozen=True, slots=True)
class PlannedFilter:
    """A distinct filter of one side of a family.

    Attributes:
        bit: Number of the lineage bit that is set in rows that pass; a family never assigns a number twice.
            Each segment records the position at which it stores the bit.
        sql: Canonical predicate over the stream's columns.
        columns: Columns that the predicate reads.
        threshold: The predicate as a comparison with a number. None for other predicates, and for bits
            that an older version assigned without a threshold. Ignored by equality.
    """

    bit: int
    sql: str
    columns: tuple[str, ...]
    threshold: Threshold | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query in the form in which slice chains use it.

    Attributes:
        id: Immutable query id.
        name: Query name (for display only).
        w_a_us: Window on a: pairs with 0 <= T_b - T_a < w_a_us.
        w_b_us: Window on b: pairs with 0 <= T_a - T_b < w_b_us.
        filter_a: Lineage bit of the query's filter on side a, or None if the query accepts every row of side
            a.
        filter_b: Lineage bit of the query's filter on side b, or None.
        residual: Condition on both rows of a pair, over ``a."c"`` and ``b."c"``; None if there is none.
        columns_a: Columns of side a that the query reads from stored rows.
        columns_b: Columns of side b that the query reads from stored rows.
        outputs: Result columns.
        since_version: Plan version that activated the query.
        backfill: ``state`` joins rows that were already stored at the activation, too.
        kind: Kind of join (``catalog.values.query.Query``).
        preserved: Sides whose rows the query checks for matches: it decides for each of these rows whether
            the row has a match.
        grouping: How pairs are grouped into results; None if the results are pairs.
        hands_on: Whether its pairs are input rows of its next step (``catalog.steps``) instead of results.
        expires_a: Times after which the query no longer needs a row of side a
            (``catalog.values.query.Side``).
        expires_b: Times after which the query no longer needs a row of side b.
    """

    id: int
    name: str
    w_a_us: int
    w_b_us: int
    filter_a: int | None
    filter_b: int | None
    residual: str | None
    columns_a: tuple[str, ...]
    columns_b: tuple[str, ...]
    outputs: tuple[Output, ...]
    since_version: int
    backfill: Backfill
    kind: JoinKind = "inner"
    preserved: tuple[Literal["a", "b"], ...] = ()
    grouping: Grouping | None = None
    hands_on: bool = False
    expires_a: tuple[tuple[str, int], ...] = ()
    expires_b: tuple[tuple[str, int], ...] = ()

    @property
    def announces(self) -> bool:
        """Return whether its results include result punctuations."""
        return any(output.name == PUNCTUATION_OUTPUT for output in self.outputs)

    def expires(self, side: str) -> tuple[tuple[str, int], ...]:
        """Return the times after which the query no longer needs a row of a side."""
        return self.expires_a if side == "a" else self.expires_b

    def alike_us(self, side: str) -> int | None:
        """Return how long after its oldest event time a row is needed, µs; None if other columns decide."""
        timed = [(name, us) for name, us in self.expires(side) if not is_rank(name)]
        return timed[0][1] if [name for name, _ in timed] == [OLDEST] else None

    @property
    def gives_pairs(self) -> bool:
        """Return whether pairs are results: semi and anti joins return rows of one side only."""
        return self.kind not in ("semi", "anti")

    def needs_one_match(self, side: str) -> bool:
        """Return whether the query needs each row of a side only until the row's first match."""
        return not self.gives_pairs and self.preserved == (side,)


@dataclass(frozen=True, slots=True)
class Slice:
    """One sliced window [w_start_us, w_end_us) of a side's chain (State-Slice, VLDB 2006, Def. 1).

    The queries of a slice are not listed here: ``FamilyPlan.slices_reached`` derives them from their windows.
    With such lists, a plan of 10,000 queries over 2,000 windows took 102 MB.

    Attributes:
        w_start_us: Start, µs behind the opposite watermark, inclusive.
        w_end_us: End, µs behind the opposite watermark, exclusive.
        keep: Lineage bits; a row enters the slice if it has at least one of them (cond'_i, State-Slice §6.1).
            With None, every row enters. Filters that imply another filter of the set are left out.
    """

    w_start_us: int
    w_end_us: int
    keep: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Ends of slices per side, µs, ascending; empty for a side that is not specified.

    Attributes:
        a: Ends of a's slices.
        b: Ends of b's slices.
    """

    a: tuple[int, ...] = ()
    b: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for ends in (self.a, self.b):
            if any(left >= right for left, right in pairwise((0, *ends))):
                raise ValueError(f"boundaries do not ascend from 0: {ends}")

    def __bool__(self) -> bool:
        return bool(self.a or self.b)

    def side(self, side: Literal["a", "b"]) -> tuple[int, ...]:
        """Return the ends of one side's slices."""
        return self.a if side == "a" else self.b


@dataclass(frozen=True, slots=True)
class Partition:
    """Part of one side's rows that one join receives if a stream is split among joins (State-Slice §3.2).

    Attributes:
        side: The side that is split; the other side's rows go to every join that can use them.
        one_of: Ids of queries, ascending; the join receives only rows that at least one of them can use.
        none_of: Ids of queries, ascending; the join receives only rows that none of them can use.
    """

    side: Literal["a", "b"]
    one_of: tuple[int, ...]
    none_of: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """One window join of a family: a chain of slices per side, over some of the rows, for some queries.

    With a state-slice chain or with selection pull-up, all queries of the family have one join. Without
    sharing, each query has its own join. With stream partition, each class of rows has its own join. The
    joins of a family share its lineage, filters and stored columns, but no state.

    Attributes:
        id: Unique in the family and derived from content: ``shared``, ``q<query id>`` or ``p<number>``.
        queries: Ids of the queries that its pairs can serve, ascending.
        chain_a: Slices of a, contiguous from 0.
        chain_b: Slices of b, contiguous from 0.
        partition: Part of a side's rows that the join receives; None for all rows that one of ``queries`` can
            use.
        pulled_up: Whether every row with a key enters, even if no query can use it, because selections are
            applied only to joined pairs (selection pull-up, State-Slice §3.1).
    """

    id: str
    queries: tuple[int, ...]
    chain_a: tuple[Slice, ...]
    chain_b: tuple[Slice, ...]
    partition: Partition | None = None
    pulled_up: bool = False


@dataclass(frozen=True, slots=True)
class Replication:
    """Keys whose rows several buckets share (fragment-and-replicate, ``operators.kernels.fragments``).

    A key with f fragments uses f buckets: each row is stored in one of them (its female copy) and probes
    all of them (its male copy). One fragment means hash partitioning. A key uses at most all buckets.

    While a family exists, the number of fragments of a key can only grow. The buckets for fewer fragments are
    a subset of the buckets for more fragments, so stored rows stay where they are and all males still probe
    them. If the number of fragments shrank, pairs would be lost.

    Attributes:
        every: Number of fragments of each key that is not heavy.
        heavy: (heavy key, its number of fragments), ascending by key; a key is an int64
            (``operators.kernels.keys.join_key``).
    """

    every: int = 1
    heavy: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.every <= ALL_BUCKETS:
            raise ValueError(f"a key has 1 to {ALL_BUCKETS} fragments, not {self.every}")
        if any(not self.every < fragments <= ALL_BUCKETS for _, fragments in self.heavy):
            raise ValueError(f"a heavy key has more fragments than other keys, which have {self.every}")
        if any(left >= right for (left, _), (right, _) in pairwise(self.heavy)):
            raise ValueError("heavy keys are not ascending")

    @property
    def replicates(self) -> bool:
        """Return whether any key has more than one fragment."""
        return self.every > 1 or bool(self.heavy)

    def grown(self, other: Replication) -> Replication:
        """Return a replication that gives each key the larger of its two numbers of fragments.

        >>> Replication(1, ((7, 4), (9, 2))).grown(Replication(3))
        Replication(every=3, heavy=((7, 4),))
        """
        every = max(self.every, other.every)
        heavy = dict(self.heavy)
        for key, fragments in other.heavy:
            heavy[key] = max(fragments, heavy.get(key, 1))
        return Replication(every, tuple((k, heavy[k]) for k in sorted(heavy) if heavy[k] > every))


@dataclass(frozen=True, slots=True)
class Bound:
    """End of a band: the value of a column plus an offset.

    Attributes:
        column: Column of the side opposite to the side of the band.
        offset: Number that is added to the column's value.
    """

    column: str
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class Band:
    """Range condition that all result pairs of a family without a join key satisfy, for every query.

    Pairs outside the range are never examined. For pairs inside the range, the residual predicates decide
    which pairs are results.

    Attributes:
        side: Side of ``column``, ``a`` or ``b``.
        column: Column whose value must be in the range.
        low: Lower end of the range; None if the range has no lower end.
        high: Upper end of the range; None if the range has no upper end.
    """

    side: Literal["a", "b"]
    column: str
    low: Bound | None
    high: Bound | None


@dataclass(frozen=True, slots=True)
class FamilyPlan:
    """Queries over one pair of streams and one join key, and how they are joined.

    Attributes:
        id: Derived from streams and key; the same family has the same id in every version.
        stream_a: Stream id of side a.
        stream_b: Stream id of side b (equal to ``stream_a`` in a self-join).
        key: Key columns as pairs (column of a, column of b).
        key_types: Common type of each pair of key columns.
        columns_a: Columns of stored rows of side a: the union of the queries' ``columns_a``, sorted.
        columns_b: Columns of stored rows of side b.
        filters_a: Distinct filters of side a, by lineage bit.
        filters_b: Distinct filters of side b, by lineage bit.
        queries: Queries by id.
        strategy: Objective that chose the joins.
        joins: Joins by id; together they answer every query, and exactly one join makes each pair of a query.
        given: Whether the slice boundaries of the only join were pinned, or were left by departed queries,
            instead of being chosen by the strategy.
        replication: Keys whose rows several buckets share.
        result_columns_a: Columns of ``columns_a`` that joined pairs carry because an output reads them,
            sorted; None means all columns, in a plan from an older version that did not distinguish them.
        result_columns_b: Columns of ``columns_b`` that joined pairs carry, or None.
        band: Range by which pairs are found in a family without a key; None if all pairs are examined.
        clock_a: Clock that measures the windows and slices of side a.
        clock_b: Clock that measures the windows and slices of side b.
        probe: How the slices are searched for partners.
        punctuations: Policy that says when the family acts on closed keys.
        memory: Policy that says where rows wait. Only a family whose clock is the order of its streams can
            have another strategy than ``plain``.
        purge_prices: Costs that decide when rows of closed keys are removed, if the policy does not decide.
        rests: Whether rows of side a are stored. Rows of an intermediate need not be stored
            (``catalog.steps``).
        band_share: Fraction of the pairs of a sample that were in the band when the band was chosen; None if
            no other band was possible or no sample was taken.
    """

    id: str
    stream_a: int
    stream_b: int
    key: tuple[tuple[str, str], ...]
    key_types: tuple[str, ...]
    columns_a: tuple[str, ...]
    columns_b: tuple[str, ...]
    filters_a: tuple[PlannedFilter, ...]
    filters_b: tuple[PlannedFilter, ...]
    queries: tuple[PlannedQuery, ...]
    strategy: Strategy
    joins: tuple[JoinPlan, ...]
    given: bool = False
    replication: Replication = Replication()
    result_columns_a: tuple[str, ...] | None = None
    result_columns_b: tuple[str, ...] | None = None
    band: Band | None = None
    clock_a: Clock = "time"
    clock_b: Clock = "time"
    probe: Probe = Probe()
    punctuations: PunctuationPolicy = PunctuationPolicy()
    memory: Memory = Memory()
    purge_prices: PurgePrices = PurgePrices()
    rests: bool = True
    band_share: float | None = None

    def filters(self, side: str) -> tuple[PlannedFilter, ...]:
        """Return the distinct filters of a side, by bit."""
        return self.filters_a if side == "a" else self.filters_b

    def clock(self, side: str) -> Clock:
        """Return the clock that measures the windows of a side."""
        return self.clock_a if side == "a" else self.clock_b

    @property
    def counted_sides(self) -> tuple[Literal["a", "b"], ...]:
        """Sides with windows of rows."""
        clocks: tuple[tuple[Literal["a", "b"], Clock], ...] = (("a", self.clock_a), ("b", self.clock_b))
        return tuple(side for side, clock in clocks if clock in ("rows", "key rows"))

    @property
    def clocks(self) -> tuple[Clock, Clock]:
        """Clocks that measure the windows of a and of b."""
        return self.clock_a, self.clock_b

    def ranks_of(self, side: str) -> tuple[str, ...]:
        """Return the columns of a side that hold ranks of rows; only an intermediate has such columns."""
        return tuple(sorted({name for q in self.queries for name, _ in q.expires(side) if is_rank(name)}))

    @property
    def sides_with_ranks(self) -> frozenset[str]:
        """Sides that are intermediates and whose rows have ranks."""
        return frozenset(side for side in ("a", "b") if self.ranks_of(side))

    @property
    def ranked(self) -> bool:
        """Return whether a stream of the family, or of its intermediates, has a window of rows."""
        return bool(self.counted_sides or self.sides_with_ranks)

    @property
    def ordered(self) -> bool:
        """Return whether the family's clock is the order of its streams; windows then count its steps."""
        return self.clock_a == "order"

    @property
    def judges_absence(self) -> bool:
        """Return whether some of its queries are outer, semi or anti joins."""
        return any(q.kind != "inner" for q in self.queries)

    @property
    def of_absence(self) -> bool:
        """Return whether the family is for outer, semi and anti joins only, according to its id."""
        return "-absence" in self.id

    @property
    def spread_side(self) -> Literal["a", "b"] | None:
        """Side whose rows are each checked for matches in one bucket; None if there is no such side.

        All buckets of a key then store the other side's rows with this key. The kind of a family never
        changes, so the side can be read from the family's id.
        """
        sides: tuple[Literal["a", "b"], ...] = ("a", "b")
        return next((side for side in sides if self.id.endswith(f"-absence-{side}")), None)

    @property
    def has_groups(self) -> bool:
        """Return whether the results of its queries are groups of pairs; this is the same for all queries."""
        return any(q.grouping is not None for q in self.queries)

    @property
    def hands_on(self) -> bool:
        """Return whether some of its queries hand on their pairs to a next step."""
        return any(q.hands_on for q in self.queries)

    def rows_expire(self, side: str) -> bool:
        """Return whether a side is an intermediate, each of whose rows has its own time of expiry."""
        return all(q.expires(side) for q in self.queries)

    @property
    def keyless_sides(self) -> frozenset[str]:
        """Sides whose rows without a key can be results: they have no match, because NULL equals nothing."""
        return frozenset(side for q in self.queries if q.kind in ("outer", "anti") for side in q.preserved)

    def lazy_ends(self, join: JoinPlan, side: Literal["a", "b"]) -> tuple[bool, ...]:
        """Return for each slice of a side whether its end is lazy: no filter stops rows or males there.

        Rows may then stay in the slice beyond its interval, since cutting them off would save nothing. The
        end of a chain is never lazy, because rows leave the state there. Filters that stop rows of an
        intermediate are ignored: each of these rows expires at its own time, in any slice, and a row that
        serves a short window mostly serves a longer one as well.

        Args:
            join: One of the family's joins.
            side: Side of the chain.
        """
        chain = join.chain_a if side == "a" else join.chain_b
        reached: dict[int | None, int] = {}
        for query, slices in self.slices_reached(join, side):
            males = query.filter_b if side == "a" else query.filter_a
            reached[males] = max(slices, reached.get(males, 0))
        every, ends = reached.get(None, 0), set(reached.values())
        rows_expire, males_expire = map(self.rows_expire, (side, "b" if side == "a" else "a"))
        lazy = [
            (rows_expire or piece.keep == following.keep)
            and (males_expire or every > number or number not in ends)
            for number, (piece, following) in enumerate(pairwise(chain), start=1)
        ]
        return (*lazy, False)

    def slices_reached(self, join: JoinPlan, side: Literal["a", "b"]) -> tuple[tuple[PlannedQuery, int], ...]:
        """Return the queries of a join, by id, each with the number of slices that its window reaches into.

        Args:
            join: One of the family's joins.
            side: Side of the chain.
        """
        starts = [piece.w_start_us for piece in (join.chain_a if side == "a" else join.chain_b)]
        members = queries_of(self.queries, join.queries)
        return tuple((q, bisect_left(starts, q.w_a_us if side == "a" else q.w_b_us)) for q in members)

    def carried(self, side: Literal["a", "b"]) -> tuple[str, ...]:
        """Return the columns of a side that joined pairs carry."""
        stored, carried = (
            (self.columns_a, self.result_columns_a)
            if side == "a"
            else (self.columns_b, self.result_columns_b)
        )
        return stored if carried is None else carried


def queries_of(queries: Sequence[PlannedQuery], ids: Sequence[int]) -> Sequence[PlannedQuery]:
    """Return the queries with these ids, in the order of the ids.

    Args:
        queries: Queries by id.
        ids: Ids of some of these queries, each once.
    """
    if len(ids) == len(queries):
        return queries
    # By bisection: with a join per query, a scan of all queries for each join would be quadratic.
    places = [bisect_left(queries, i, key=lambda q: q.id) for i in ids]
    return [queries[place] for place in places]


@dataclass(frozen=True, slots=True)
class Plan:
    """One version of the shared plan.

    Attributes:
        version: Counts up from 1, without gaps.
        strategy: Objective of families that have no objective of their own.
        streams: Every stream that any query has used so far, by id (once used, a stream is always read).
        families: Families by id.
        next_bit: First lineage bit not assigned yet, per family and side: ``("<family>/a", 3)``. ``"*"`` has
            the greatest number of all departed families, so that no bit is ever assigned twice.
        departed: Replication of families whose queries have all left, by family id. A family that returns
            continues with its former replication, because its rows may still be stored: if it leaves and
            returns at one batch boundary, only the last plan version of this boundary takes effect.
    """

    version: int
    strategy: Strategy
    streams: tuple[Stream, ...]
    families: tuple[FamilyPlan, ...]
    next_bit: tuple[tuple[str, int], ...] = ()
    departed: tuple[tuple[str, Replication], ...] = ()

    def replications(self) -> dict[str, Replication]:
        """Return the replication of every family whose keys were ever spread over buckets, by id."""
        return dict(self.departed) | {f.id: f.replication for f in self.families if f.replication.replicates}
