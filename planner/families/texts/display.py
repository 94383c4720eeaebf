"""Text of a plan's values for people: windows, predicates and families.

The texts are only for display: no code parses or compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from catalog.sql_text import quoted
from catalog.steps import is_intermediate, membership
from catalog.values.plan import ALL_BUCKETS, Band, Bound, FamilyPlan, Partition, Replication, Slice
from catalog.values.policies.memory import Memory
from catalog.values.query import UNBOUNDED_US, Clock
from planner.families.families import SIDES, SideName, other_side, side_filters, side_stream
from planner.predicates.conditions import Atom
from planner.predicates.read_condition import read_condition, with_columns

#: Word in the title of a family of outer, semi and anti joins.
ABSENCE = "absence"
#: Word in the title of a family of queries without windows.
ORDERED = "ordered"
#: Word in the title of a family of queries with GROUP BY.
GROUPS = "groups"

# Longest unit first. Fractions are shown in seconds, but below a millisecond only µs are readable.
_UNITS_US = (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000))
_SECOND_US = 1_000_000
_MILLISECOND_US = 1_000


def display_duration(duration_us: int) -> str:
    """Return a duration in the largest unit that divides it, otherwise in seconds.

    Inclusive SQL bounds make windows 1 µs longer than users write; this microsecond is shown separately.

    >>> [display_duration(us) for us in (0, 1, 1_500, 2_500_000, 90_000_000, 43_200_000_000, 600_000_001)]
    ['0s', '1us', '1.5ms', '2.5s', '90s', '12h', '10m+1us']
    """
    if duration_us >= UNBOUNDED_US:
        return "unbounded"
    if duration_us > _SECOND_US and duration_us % _SECOND_US == 1:
        return f"{display_duration(duration_us - 1)}+1us"
    for unit, unit_us in _UNITS_US:
        if duration_us and duration_us % unit_us == 0:
            return f"{duration_us // unit_us}{unit}"
    if 0 < duration_us < _MILLISECOND_US:
        return f"{duration_us}us"
    if 0 < duration_us < _SECOND_US:
        return f"{_decimal(duration_us, _MILLISECOND_US)}ms"
    return f"{_decimal(duration_us, _SECOND_US)}s"


def _decimal(value: int, unit: int) -> str:
    """Divide exactly, because a float would round a window of some years and one microsecond."""
    whole, rest = divmod(value, unit)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def display_interval(piece: Slice, clock: Clock = "time") -> str:
    """Return the interval that a slice covers, in the unit of its clock.

    >>> display_interval(Slice(0, 10_000_000, None)), display_interval(Slice(1, 20, None), "rows")
    ('[0s, 10s)', '[1, 20) rows')
    """
    if clock != "time":
        unit = {"rows": "rows", "key rows": "rows of each key", "order": "steps"}[clock]
        return f"[{piece.w_start_us}, {piece.w_end_us}) {unit}"
    return f"[{display_duration(piece.w_start_us)}, {display_duration(piece.w_end_us)})"


def memory_text(memory: Memory) -> str:
    """Return a note on where rows of a family wait; empty if all rows are in memory and no row waits.

    >>> memory_text(Memory("hybrid")), memory_text(Memory("dbf")), memory_text(Memory())
    ('sorted first, leading rows on disk', 'leading rows on disk', '')
    """
    ways = {"sorted first": memory.sorts, "leading rows on disk": memory.parks}
    return ", ".join(way for way, taken in ways.items() if taken)


def resting_text(family: FamilyPlan) -> str:
    """Return a note that the pairs of the previous step are not stored; empty if they are stored."""
    return "" if family.rests else "pairs of the previous step are recomputed"


def replication_text(replication: Replication) -> str:
    """Return a note on the number of buckets that store rows of one key; empty for hash partitioning.

    >>> replication_text(Replication(ALL_BUCKETS)), replication_text(Replication(1, ((7, 2), (9, 8))))
    ('rows of every key in all buckets', 'rows of 2 heavy keys in 2 to 8 buckets')
    >>> replication_text(Replication(2, ((7, 3),)))
    'rows of every key in 2 buckets, of 1 heavy key in 3 buckets'
    """
    texts = [] if replication.every == 1 else [f"of every key in {_buckets(replication.every)}"]
    if replication.heavy:
        fragments = [count for _, count in replication.heavy]
        keys = f"{len(fragments)} heavy key{'s' if len(fragments) > 1 else ''}"
        least, most = _buckets(min(fragments)), _buckets(max(fragments))
        spread = most if least == most else f"{least.removesuffix(' buckets')} to {most}"
        texts.append(f"of {keys} in {spread}")
    return f"rows {', '.join(texts)}" if texts else ""


def placement_text(family: FamilyPlan, labels: Mapping[SideName, str]) -> str:
    """Return a note on how the rows of a family spread over buckets; empty for hash partitioning.

    Args:
        family: The family.
        labels: Prefix of each side's columns (``labels_of``).
    """
    side = family.spread_side
    if side is None:
        return replication_text(family.replication)
    return f"rows of {labels[side]} shared by all buckets, rows of {labels[other_side(side)]} in each of them"


def band_text(band: Band, labels: Mapping[SideName, str]) -> str:
    """Return the text of the range of values in which a family without a key looks for pairs.

    >>> band_text(Band("a", "x", Bound("lo"), Bound("hi", 1.5)), {"a": "A", "b": "B"})
    'pairs with A.x in [B.lo, B.hi + 1.5]'
    >>> band_text(Band("b", "x", None, Bound("x", -2.0)), {"a": "A", "b": "B"})
    'pairs with B.x in (.., A.x - 2]'
    """
    other = labels["b" if band.side == "a" else "a"]

    def end(bound: Bound) -> str:
        sign = "-" if bound.offset < 0 else "+"
        return f"{other}.{bound.column}{f' {sign} {abs(bound.offset):g}' if bound.offset else ''}"

    low = "(.." if band.low is None else f"[{end(band.low)}"
    high = "..)" if band.high is None else f"{end(band.high)}]"
    return f"pairs with {labels[band.side]}.{band.column} in {low}, {high}"


def _buckets(fragments: int) -> str:
    return "all buckets" if fragments == ALL_BUCKETS else f"{fragments} buckets"


def partition_text(partition: Partition, names: Mapping[int, str]) -> str:
    """Return a note on the rows of a split stream that a join admits, by the queries that can use the rows.

    >>> partition_text(Partition("a", (1, 2), (3,)), {1: "q1", 2: "q2", 3: "q3"})
    'for q1 or q2, not for q3'
    """
    wanted = "for " + " or ".join(names[i] for i in partition.one_of)
    if not partition.none_of:
        return wanted
    return f"{wanted}, not for {' or '.join(names[i] for i in partition.none_of)}"


@dataclass(frozen=True, slots=True)
class FamilyText:
    """Texts of a family's key, sides and filters; made once per family, as many slices show the same filters.

    Attributes:
        title: The family's key, and for a self-join the meaning of ``a`` and ``b``.
        labels: Prefix of each side's columns: the name of its stream, or ``a`` and ``b`` in a self-join.
        filters: Text of each filter by side and bit, with whether the text needs parentheses inside OR.
    """

    title: str
    labels: Mapping[SideName, str]
    filters: Mapping[SideName, Mapping[int, tuple[str, bool]]]

    def filter(self, side: SideName, bit: int | None) -> str | None:
        """Return the text of a filter, with columns named as in a query; None if there is no filter."""
        return None if bit is None else self.filters[side][bit][0]

    def keep(self, side: SideName, bits: Iterable[int]) -> str:
        """Return the text of cond'_i: a slice keeps rows that pass one of its filters, or no rows."""
        shown = [self.filters[side][bit] for bit in bits]
        if not shown:
            return "nothing"
        if len(shown) == 1:
            return shown[0][0]
        return " OR ".join(f"({text})" if compound else text for text, compound in shown)

    def residual(self, sql: str) -> str:
        """Return a residual with ``a`` and ``b`` replaced by the labels of their sides."""
        return _with_tables(sql, {"a": self.labels["a"], "b": self.labels["b"]})[0]


def family_title(
    stream_a: str,
    stream_b: str,
    key: Iterable[tuple[str, str]],
    *,
    absence: bool = False,
    groups: bool = False,
    clocks: tuple[Clock, Clock] = ("time", "time"),
    spread: SideName | None = None,
) -> str:
    """Return the title of a family: its key and, for a self-join, the meaning of ``a`` and ``b``.

    Args:
        stream_a: Stream name of side a.
        stream_b: Stream name of side b.
        key: Key columns as (of a, of b); empty for a theta join, whose title has the labels of its sides.
        absence: Whether its queries are outer, semi and anti joins.
        groups: Whether its queries have GROUP BY.
        clocks: Clocks that measure the windows of a and of b.
        spread: Side whose rows are checked for matches and divided among the buckets of their key; only for
            families of outer, semi and anti joins.

    >>> family_title("A", "B", [("k", "k")], absence=True)
    'A.k = B.k  (absence)'
    >>> family_title("A", "B", [("k", "k")], absence=True, spread="b")
    'A.k = B.k  (absence of B)'
    >>> family_title("A", "B", [("k", "k")], clocks=("key rows", "rows"))
    'A.k = B.k  (A by rows of each key, B by rows)'
    >>> family_title("A", "B", [("k", "k")]), family_title("A", "A", [("k", "m")])
    ('A.k = B.k', 'a.k = b.m  (A a, A b)')
    >>> family_title("A", "B", []), family_title("A", "A", [])
    ('A × B', 'a × b  (A a, A b)')
    """
    label_a, label_b = (stream_a, stream_b) if stream_a != stream_b else ("a", "b")
    title = " AND ".join(f"{label_a}.{a} = {label_b}.{b}" for a, b in key) or f"{label_a} × {label_b}"
    notes = [f"{stream_a} a, {stream_b} b"] if stream_a == stream_b else []
    of_side = "" if spread is None else f" of {label_a if spread == 'a' else label_b}"
    notes += [f"{ABSENCE}{of_side}"] if absence else [GROUPS] if groups else []
    notes += [ORDERED] if clocks == ("order", "order") else []
    for label, clock in zip((label_a, label_b), clocks, strict=True):
        if clock in ("rows", "key rows"):
            notes.append(f"{label} by rows{' of each key' if clock == 'key rows' else ''}")
    return f"{title}  ({', '.join(notes)})" if notes else title


def predicate_text(sql: str, label: str) -> str:
    """Return a canonical predicate over one stream's columns with the stream's name before each.

    >>> predicate_text('"v" < 0.2', "A")
    'A.v < 0.2'
    """
    return _with_tables(sql, {"": label})[0]


def title_of(family: FamilyPlan, streams: Mapping[int, str]) -> str:
    """Return the title of a planned family; ``streams`` has stream names by id."""
    return family_title(
        streams[family.stream_a],
        streams[family.stream_b],
        family.key,
        absence=family.of_absence,
        groups=family.has_groups,
        clocks=(family.clock_a, family.clock_b),
        spread=family.spread_side,
    )


def labels_of(family: FamilyPlan, streams: Mapping[int, str]) -> dict[SideName, str]:
    """Return the prefix of each side's columns: the name of its stream, or ``a`` and ``b`` in a self-join."""
    self_join = family.stream_a == family.stream_b
    return {s: s if self_join else streams[side_stream(family, s)] for s in SIDES}


def family_text(family: FamilyPlan, streams: Mapping[int, str]) -> FamilyText:
    """Return the texts of a family: its title, the labels of its sides and its filters.

    If filters are not needed, ``title_of`` and ``labels_of`` are faster.

    Args:
        family: The family.
        streams: Stream names by id.
    """
    labels = labels_of(family, streams)
    filters = {
        s: {bit: _with_tables(f.sql, {"": labels[s]}) for bit, f in side_filters(family, s).items()}
        for s in SIDES
    }
    for side in SIDES:
        if is_intermediate(side_stream(family, side)):
            names = {membership(q.id): q.name for q in family.queries}
            passing = side_filters(family, side).values()
            filters[side] = {f.bit: (f"pairs of {names[f.columns[0]]}", False) for f in passing}
    return FamilyText(title_of(family, streams), labels, filters)


def _with_tables(sql: str, tables: Mapping[str, str]) -> tuple[str, bool]:
    """Add table names to columns; return the text and whether it needs parentheses inside OR."""

    def shown(side: str, column: str) -> str:
        plain = column.isascii() and column.isidentifier()
        return f"{tables[side]}.{column if plain else quoted(column)}"

    return with_columns(sql, shown), not isinstance(read_condition(sql), Atom)
