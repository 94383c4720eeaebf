"""Expiry of an intermediate's rows: when no later row can match all rows of a combination.

    a1 b1   oldest 10:00:00, newest 10:00:50      windows of a minute: matches c up to 10:00:59.999999
    a2 b2   oldest 10:00:50, newest 10:00:50                           matches c up to 10:01:49.999999

A slice alone would use the newest event time and keep both rows up to 10:01:50. Instead, each row has its own
time at which it expires, and segments are rewritten without expired rows from time to time. The choice of
these segments depends only on the rows and the watermark, so a repeated batch makes the same choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from catalog.steps import EXPIRES
from catalog.values.plan import FamilyPlan
from catalog.values.query import OLDEST, UNBOUNDED_US
from operators.kernels.keys import Bools, Codes, Int64s
from operators.segments.segment import Segment

#: At the end of a batch, at most one row in this many has expired but is still stored.
MOST_EXPIRED = 25


#: Class of each row (None if all rows have one class), and the set of queries of each class.
Classes = tuple[Codes | None, Sequence[int]]


@dataclass(frozen=True, slots=True, eq=False)
class Expiry:
    """Times up to which queries need the rows of a side that is an intermediate.

    Attributes:
        alike_us: Time, µs, for which a query needs a row after the row's oldest event time, by query, given
            as a set of one query. For other queries, rows have the column ``expires``.
    """

    alike_us: Mapping[int, int]

    def expired(self, rows: Segment, classes: Classes, reached: int) -> Bools:
        """Return which rows no later row can match, bool[n], or bool[1] if the answer is the same for all.

        Args:
            rows: Stored rows.
            classes: Class of each row (None if all rows have one class), and for each class the set of
                queries that may use its rows.
            reached: Lower bound of the event times of later rows of the other side.
        """
        return self._needed_until(rows, *classes) < reached

    def _needed_until(self, rows: Segment, codes: Codes | None, sets: Sequence[int]) -> Int64s:
        """Return event times up to which rows are needed, int64[n], or int64[1] for all rows."""
        expires, oldest = rows.column(EXPIRES), rows.column(OLDEST)
        if expires is not None:
            until: Int64s = expires.to_numpy()
            return until
        if oldest is None:
            # These rows were written by an older version of the service, without times of expiry.
            return np.full(1, UNBOUNDED_US)
        longest = np.array([self._longest_us(members) for members in sets], dtype=np.int64)
        first: Int64s = oldest.to_numpy()
        return first + (longest[0] if codes is None else longest[codes])

    def _longest_us(self, members: int) -> int:
        return max((us for query, us in self.alike_us.items() if query & members), default=0)


def leaving(segments: Sequence[Segment], gone: Sequence[Bools]) -> list[Bools | None]:
    """Return which rows of each segment should be removed now, bool[n], or None to keep all its rows.

    Args:
        segments: Stored rows.
        gone: For each segment, which of its rows no later row can match.
    """
    counts = [int(np.count_nonzero(each)) for each in gone]
    left, most = sum(counts), sum(map(len, segments))
    found: list[Bools | None] = [None] * len(segments)
    # Rewriting pays most for segments in which most rows have expired.
    for place in sorted(range(len(segments)), key=lambda p: -counts[p] / max(len(segments[p]), 1)):
        if left * MOST_EXPIRED <= most - left:
            break
        found[place] = gone[place]
        left, most = left - counts[place], most - counts[place]
    return found


def expiry_of(family: FamilyPlan, side: str) -> Expiry:
    """Return the expiry of a family's side, which is an intermediate."""
    alike = {1 << number: query.alike_us(side) for number, query in enumerate(family.queries)}
    return Expiry({query: us for query, us in alike.items() if us is not None})
