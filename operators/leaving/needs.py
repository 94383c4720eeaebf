"""How long rows are needed, by the queries that they may serve.

    row of a    serves q1  ANTI JOIN, 10 s     needed until it has a match, at most for 10 s
                       q2  ANTI JOIN, 30 s     needed until it has a match, at most for 30 s
                       q3  LEFT JOIN,  5 s     needed for 5 s: every match is a result

A semi or anti join checks rows of one side for matches. It needs such a row only until the row's first match:
then a semi join has returned the row, and an anti join never will. A row whose nearest match is 7 s away is
needed for 5 s by q3, and not needed by q1 and q2. If the nearest match is 12 s away, q1 needs the row for
10 s, and q2 does not need it.

Leaving early never changes a result: a row leaves only if no later match can change one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from operators.kernels.keys import Bools, Int64s
from operators.lineage.lineage import RowClasses

#: Greater than every distance of a match, and than the distance that stands for no match.
_ANY = np.iinfo(np.int64).max

#: Returns the distances of the nearest matches ahead and behind, for a condition group and row positions.
Nearest = Callable[[int, Int64s], tuple[Int64s, Int64s]]


@dataclass(frozen=True, slots=True)
class QueryNeed:
    """Conditions under which a query still needs the rows of one side.

    Attributes:
        own_us: Distance from a row to the opposite watermark at which the query stops needing the row, µs.
        group: Condition group of a query that needs a row only until its first match; None for other queries.
        w_a_us: Distance below which a match ahead counts, µs.
        w_b_us: Distance below which a match behind counts, µs.
    """

    own_us: int
    group: int | None
    w_a_us: int
    w_b_us: int


@dataclass(frozen=True, slots=True, eq=False)
class GroupNeeds:
    """Needs of the queries of one condition group that end with the first match.

    Attributes:
        group: Number of the condition group.
        windows_us: int64[k], ``own_us`` of these needs, ascending.
        least_a_us: int64[k + 1]. If the opposite watermark has passed a row by n of these windows, a match
            ahead below ``least_a_us[n]`` counts for all queries that still need the row.
        least_b_us: The same for matches behind.
    """

    group: int
    windows_us: Int64s
    least_a_us: Int64s
    least_b_us: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class RowNeeds:
    """Needs of the queries that a row may serve.

    Attributes:
        keeps_us: Distance to the opposite watermark up to which a row is needed, matched or not, µs.
        until_us: Longest window, µs: slices end there, so rows leave then in any case.
        groups: Needs that end with the row's first match.
    """

    keeps_us: int
    until_us: int
    groups: tuple[GroupNeeds, ...]

    @classmethod
    def of(cls, needs: Iterable[QueryNeed]) -> RowNeeds | None:
        """Return the combined needs of some queries; None if a match cannot end any need early."""
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
        """Return which rows no query needs, although some window still reaches them, bool[n].

        Args:
            age_us: int64[n], how far the opposite watermark has passed each row.
            pos: int64[n], positions of the rows.
            nearest: Looks up matches.
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
    """Return which rows of a segment no query needs, although windows still reach them, bool[n].

    Args:
        needs: Needs by the set of queries that a row may serve; rows with other sets are always needed.
        classes: Classes of the rows.
        age_us: int64[n], how far the opposite watermark has passed each row.
        pos: int64[n], positions of the rows.
        nearest: Looks up matches.
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
    """Return, for each index, the least value from there to the end; ``_ANY`` after the last index.

    >>> _least_of_rest([3, 9, 5])[:3].tolist()
    [3, 5, 5]
    """
    rest = np.array([*values, _ANY], dtype=np.int64)
    return np.minimum.accumulate(rest[::-1])[::-1]
