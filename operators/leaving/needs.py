"""Time for which a row is needed: the longest time for which one of its queries needs the row.

    row of a    serves q1  ANTI JOIN, 10 s     needed until it has a match, at most for 10 s
                       q2  ANTI JOIN, 30 s     needed until it has a match, at most for 30 s
                       q3  LEFT JOIN,  5 s     needed for 5 s: every match is a result

A semi or anti join checks rows of one side for matches. It needs such a row only until the row's first match:
then a semi join has returned the row, and an anti join never will. If the row's nearest match is 7 s away, q3
needs the row for 5 s, and q1 and q2 do not need it any more. If the nearest match is 12 s away, q1 needs the
row for 10 s, and q2 does not need it any more.

Early removal never changes a result, because a row is removed only if no later match of it can change one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from operators.kernels.keys import Bools, Int64s
from operators.lineage.lineage import RowClasses

#: Distance greater than every other distance, even than the distance that means no match.
_ANY = np.iinfo(np.int64).max

#: Function that returns, for a condition group and the positions of rows, the distances of the rows' nearest
#: matches ahead and behind.
Nearest = Callable[[int, Int64s], tuple[Int64s, Int64s]]


@dataclass(frozen=True, slots=True)
class QueryNeed:
    """Conditions under which a query still needs the rows of one side.

    Attributes:
        own_us: Distance of the opposite watermark from a row at which the query stops needing the row, µs.
        group: Condition group of the query if it needs a row only until the row's first match, or None.
        w_a_us: Distance below which a match ahead (T_b - T_a >= 0) is in the query's window, µs.
        w_b_us: Distance below which a match behind is in the query's window, µs.
    """

    own_us: int
    group: int | None
    w_a_us: int
    w_b_us: int


@dataclass(frozen=True, slots=True, eq=False)
class GroupNeeds:
    """Queries of one condition group that need a row only until its first match.

    Attributes:
        group: Number of the condition group.
        windows_us: int64[k], ``own_us`` of the k queries, ascending.
        least_a_us: int64[k + 1]. If the opposite watermark has passed a row by n of these windows, a match
            ahead below ``least_a_us[n]`` is in the windows of all queries that still need the row.
        least_b_us: int64[k + 1], distances of matches behind, in the same way.
    """

    group: int
    windows_us: Int64s
    least_a_us: Int64s
    least_b_us: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class RowNeeds:
    """Needs of all queries that a row may serve.

    Attributes:
        keeps_us: Distance of the opposite watermark up to which the row is needed even if it has a match, µs.
        until_us: Longest window, µs. The last slice ends there, so the row is then removed in any case.
        groups: Queries that need the row only until its first match, per condition group.
    """

    keeps_us: int
    until_us: int
    groups: tuple[GroupNeeds, ...]

    @classmethod
    def of(cls, needs: Iterable[QueryNeed]) -> RowNeeds | None:
        """Return the combined needs of some queries, or None if a match cannot end any of them early."""
        keeps_us, by_group = 0, dict[int, list[QueryNeed]]()
        for need in needs:
            if need.group is None:
                keeps_us = max(keeps_us, need.own_us)
            else:
                by_group.setdefault(need.group, []).append(need)
        longest_us = max((need.own_us for own in by_group.values() for need in own), default=0)
        if longest_us <= keeps_us:
            return None
        return cls(keeps_us, longest_us, tuple(_group_needs(g, own) for g, own in sorted(by_group.items())))

    def ended(self, age_us: Int64s, pos: Int64s, nearest: Nearest) -> Bools:
        """Return which rows no query needs any more, although some window still reaches them, bool[n].

        Args:
            age_us: int64[n], how far the opposite watermark has passed each row, µs.
            pos: int64[n], positions of the rows.
            nearest: Looks up the nearest matches of rows.
        """
        ended: Bools = (age_us >= self.keeps_us) & (age_us < self.until_us)
        some = np.flatnonzero(ended)
        for needs in self.groups:
            if not len(some):
                break
            ahead, behind = nearest(needs.group, pos[some])
            passed = np.searchsorted(needs.windows_us, age_us[some], side="right")
            matched = (ahead < needs.least_a_us[passed]) | (behind < needs.least_b_us[passed])
            ended[some[~matched]] = False
            some = some[matched]
        return ended


def ended_needs(
    needs: Mapping[int, RowNeeds], classes: RowClasses, age_us: Int64s, pos: Int64s, nearest: Nearest
) -> Bools:
    """Return which rows of a segment no query needs any more, although windows still reach them, bool[n].

    Args:
        needs: Needs by the set of queries that a row may serve. Rows with a set that has no entry are needed.
        classes: Classes of the rows.
        age_us: int64[n], how far the opposite watermark has passed each row, µs.
        pos: int64[n], positions of the rows.
        nearest: Looks up the nearest matches of rows.
    """
    ended = np.zeros(len(pos), dtype=np.bool_)
    for mask in needs:
        codes = [code for code, served in enumerate(classes.masks) if served == mask]
        if not codes:
            continue
        if classes.codes is None:
            return needs[mask].ended(age_us, pos, nearest)
        rows = np.flatnonzero(np.isin(classes.codes, codes))
        ended[rows] = needs[mask].ended(age_us[rows], pos[rows], nearest)
    return ended


def _group_needs(group: int, needs: list[QueryNeed]) -> GroupNeeds:
    ordered = sorted(needs, key=lambda need: need.own_us)
    return GroupNeeds(
        group,
        np.array([need.own_us for need in ordered], dtype=np.int64),
        _least_of_rest([need.w_a_us for need in ordered]),
        _least_of_rest([need.w_b_us for need in ordered]),
    )


def _least_of_rest(values: list[int]) -> Int64s:
    """Return for each index the least value from the index to the end, and at last ``_ANY``.

    >>> _least_of_rest([3, 9, 5])[:3].tolist()
    [3, 5, 5]
    """
    rest = np.array([*values, _ANY], dtype=np.int64)
    return np.minimum.accumulate(rest[::-1])[::-1]
