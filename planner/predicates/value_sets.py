"""Sets of values of one expression: the values for which a condition such as ``v > 10 AND v <> 12`` is true.

A set is stored as a list of cuts, and a flag for NULL. A cut is a place in the order of all values where
membership changes: the cut ``(10, False)`` is just before 10, and ``(10, True)`` is just after 10:

    v > 10 AND v <> 12        10  .  11  .  12  .  13
    cuts                         |         |  |
                              (10,True) (12,False) (12,True)       out before the first cut, then in, out, in

Cuts need only a total order of the values, not a next value, so they work for every type. DuckDB orders all
values of a type, including doubles (NaN equals NaN and is above infinity), and texts by their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

#: A constant; the constants of one set have one type.
Value = Decimal | float | str | date | datetime | bool

#: A place in the order of values: a value, and False for the place just before it, True for just after it.
Cut = tuple[Value, bool]


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A set of values of one type, which may include NULL.

    Attributes:
        cuts: Places where membership changes, ascending and distinct.
        low: Whether the values before the first cut are in the set.
        null: Whether NULL is in the set.
    """

    cuts: tuple[Cut, ...] = ()
    low: bool = False
    null: bool = False

    def __or__(self, other: ValueSet) -> ValueSet:
        """Return the values that are in at least one of the two sets."""
        return self._combined(other, lambda x, y: x or y)

    def __and__(self, other: ValueSet) -> ValueSet:
        """Return the values that are in both sets."""
        return self._combined(other, lambda x, y: x and y)

    def __le__(self, other: ValueSet) -> bool:
        """Return whether every value of this set is in the other set, too.

        >>> below(Decimal(5)) <= below(Decimal(10)), below(Decimal(10)) <= below(Decimal(5))
        (True, False)
        """
        if self.null > other.null or self.low > other.low:
            return False
        if self.cuts and other.cuts and not (self.low or other.low) and self.cuts[0] < other.cuts[0]:
            return False  # Most compared sets differ in the first cut, so the rest need not be compared.
        return (self & other) == self

    def _combined(self, other: ValueSet, either: Callable[[bool, bool], bool]) -> ValueSet:
        ours, theirs = self.cuts, other.cuts
        x, y = self.low, other.low
        inside = low = either(x, y)
        cuts: list[Cut] = []
        i = j = 0
        while i < len(ours) or j < len(theirs):
            if j == len(theirs) or (i < len(ours) and ours[i] < theirs[j]):
                at, i, x = ours[i], i + 1, not x
            elif i == len(ours) or ours[i] != theirs[j]:
                at, j, y = theirs[j], j + 1, not y
            else:
                at, i, x, j, y = ours[i], i + 1, not x, j + 1, not y
            if either(x, y) != inside:
                inside = not inside
                cuts.append(at)
        return ValueSet(tuple(cuts), low, either(self.null, other.null))

    def fewest_cuts_within(self, known: ValueSet) -> ValueSet:
        """Return the set with the fewest cuts that has the same values as this set inside ``known``.

        A gap between values of ``known`` is in the result if the values on both sides of the gap are in this
        set. A gap at an end is in the result if its only neighbour is. So values outside ``known`` do not
        affect the result.

        >>> other_than_0 = points([Decimal(0)]).inverse
        >>> (below(Decimal(1)) & other_than_0).fewest_cuts_within(other_than_0) == below(Decimal(1))
        True
        """
        inside = self & known
        ends: list[Cut | None] = [*known.cuts, None]
        starts: list[Cut | None] = [None, *known.cuts]
        filled = inside
        for start, end in list(zip(starts, ends, strict=True))[1 if known.low else 0 :: 2]:
            before = None if start is None else inside.contains_before(start)
            behind = None if end is None else inside.contains_behind(end)
            if before is not False and behind is not False and (before or behind):
                cuts = tuple(cut for cut in (start, end) if cut is not None)
                filled |= ValueSet(cuts, low=start is None)
        return filled

    def contains_before(self, cut: Cut) -> bool:
        """Return whether the values just before a place are in the set."""
        return self.low != (sum(each < cut for each in self.cuts) % 2 == 1)

    def contains_behind(self, cut: Cut) -> bool:
        """Return whether the values just after a place are in the set."""
        return self.low != (sum(each <= cut for each in self.cuts) % 2 == 1)

    @property
    def inverse(self) -> ValueSet:
        """The set of all values that are not in this set; NULL is in both sets or in neither."""
        return ValueSet(self.cuts, not self.low, self.null)

    @property
    def complement(self) -> ValueSet:
        """The values that are not in the set, and NULL if NULL is not in the set."""
        return ValueSet(self.cuts, not self.low, not self.null)

    @property
    def with_null(self) -> ValueSet:
        """The set with NULL added."""
        return ValueSet(self.cuts, self.low, True)

    @property
    def point(self) -> Value | None:
        """The only value of the set, or None if the set has no value or several values."""
        if self.low or self.null or len(self.cuts) != 2:
            return None
        (first, behind), (last, end) = self.cuts
        return first if first == last and not behind and end else None


#: The empty set; the set of all values except NULL. The two sets below also contain NULL.
NONE, VALUES = ValueSet(), ValueSet(low=True)
NULL, ALL = ValueSet(null=True), ValueSet(low=True, null=True)


def below(value: Value, *, inclusive: bool = False) -> ValueSet:
    """Return the set of all values < ``value``, or <= ``value`` if ``inclusive``."""
    return ValueSet(((value, inclusive),), low=True)


def above(value: Value, *, inclusive: bool = False) -> ValueSet:
    """Return the set of all values > ``value``, or >= ``value`` if ``inclusive``."""
    return ValueSet(((value, not inclusive),))


def points(values: Iterable[Value]) -> ValueSet:
    """Return a set of single values.

    >>> points([Decimal(1), Decimal(1)]).point
    Decimal('1')
    """
    ordered = sorted(set(values))
    return ValueSet(tuple((value, behind) for value in ordered for behind in (False, True)))


def union(sets: Iterable[ValueSet]) -> ValueSet:
    """Return the values that are in any set; the list is halved so that n values take n log n steps."""
    return _by_halves(list(sets), ValueSet.__or__, NONE)


def intersection(sets: Iterable[ValueSet]) -> ValueSet:
    """Return the values that are in all sets."""
    return _by_halves(list(sets), ValueSet.__and__, ALL)


def _by_halves(
    sets: list[ValueSet], combine: Callable[[ValueSet, ValueSet], ValueSet], empty: ValueSet
) -> ValueSet:
    while len(sets) > 1:
        pairs = [combine(left, right) for left, right in zip(sets[::2], sets[1::2], strict=False)]
        sets = pairs + sets[len(pairs) * 2 :]
    return sets[0] if sets else empty
