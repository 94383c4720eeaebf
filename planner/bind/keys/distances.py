"""Bounds on the distances between the event times of a query's streams, including implied bounds.

    a, b within 5 s, b, c within 3 s      a, c within 8 s, even if the windows of a and c are wider

Windows and conditions bound how much later a row of one stream may be than a row of another stream,
``T_j - T_i <= us``. The bounds implied by these bounds are shortest paths (Floyd and Warshall; difference
constraints, Cormen et al., *Introduction to Algorithms*, 3rd ed., section 24.4).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import product

from catalog.values.query import UNBOUNDED_US

#: Bound in µs that is so large that every pair of rows satisfies it.
_ANY_US = UNBOUNDED_US - 1


@dataclass(frozen=True, slots=True)
class TimeBound:
    """Bound on how much later a row of stream ``later`` may be than a row of stream ``earlier``.

    Attributes:
        earlier: Position of one stream in FROM.
        later: Position of the other stream.
        most_us: ``T_later - T_earlier <= most_us``.
    """

    earlier: int
    later: int
    most_us: int


@dataclass(slots=True)
class Distances:
    """Bounds on the event times of n streams.

    Attributes:
        streams: Number of streams.
        most_us: How much later a row of stream j may be than a row of stream i, in µs, by (i, j). If (i, j)
            is missing, there is no bound.
    """

    streams: int
    most_us: dict[tuple[int, int], int] = field(default_factory=dict)

    def bound(self, earlier: int, later: int, most_us: int | None) -> None:
        """Add ``T_later - T_earlier <= most_us``; None adds nothing."""
        if most_us is not None:
            known = self.most_us.get((earlier, later), _ANY_US)
            self.most_us[earlier, later] = min(most_us, known)

    def all_equal(self) -> None:
        """Bound all distances to 0; in a join without windows, distances are steps of the streams' order."""
        for i, j in product(range(self.streams), range(self.streams)):
            self.bound(i, j, 0)

    def close(self) -> bool:
        """Add all implied bounds; return whether any combination of rows can satisfy all bounds.

        >>> close = Distances(3, {(0, 1): 5, (1, 2): 3, (2, 0): 1})
        >>> close.close(), close.most_us[0, 2], close.most_us[1, 0]
        (True, 8, 4)
        """
        every = range(self.streams)
        for via, earlier, later in product(every, every, every):
            first, second = self.most_us.get((earlier, via)), self.most_us.get((via, later))
            if first is not None and second is not None:
                self.bound(earlier, later, first + second)
        return all(self.most_us.get((i, i), 0) >= 0 for i in every)

    def missing(self) -> tuple[int, int] | None:
        """Return the first (i, j) without a bound on how much later a row of j may be than a row of i."""
        pairs = product(range(self.streams), range(self.streams))
        return next((pair for pair in pairs if pair[0] != pair[1] and pair not in self.most_us), None)

    def windows_us(self, left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, int]:
        """Return the windows of a step's two sides, each measured from the newest row of its side.

        The newest row of a side may come from any of its streams. So the window of the other side is the
        largest distance that the bounds allow for any of these streams.
        """
        ahead = max(min(self.most_us[i, j] for i in left) for j in right)
        behind = max(min(self.most_us[j, i] for j in right) for i in left)
        return _window_us(ahead), _window_us(behind)

    def ahead(self, left: tuple[int, ...], right: tuple[int, ...]) -> dict[int, int]:
        """Return how much later the newest row of ``right`` may be than the row of each ``left`` stream.

        Streams in ``left`` without such a bound are missing in the result.
        """
        most = {i: max(self.most_us[i, j] for j in right) for i in left}
        return {i: us for i, us in most.items() if us < _ANY_US}

    def alike(self, left: tuple[int, ...], right: tuple[int, ...]) -> int | None:
        """Return the bound that ``ahead`` gives to each of several streams, or None without such a bound."""
        ahead = self.ahead(left, right)
        if len(left) == 1 or len(ahead) < len(left) or len(set(ahead.values())) > 1:
            return None
        return ahead[left[0]]

    def unsaid(
        self, left: tuple[int, ...], right: tuple[int, ...], counted: Collection[int] = ()
    ) -> list[TimeBound]:
        """Return the bounds between two sides that must be tested on each pair.

        All other bounds are already ensured: by the window for a side of one stream, or by ``ahead`` for a
        side of several streams.

        Args:
            left: Streams of side a.
            right: Streams of side b.
            counted: Streams with windows of rows, which do not bound event times.
        """
        ahead_us, behind_us = self.windows_us(left, right)
        ahead_us = UNBOUNDED_US if left[0] in counted else ahead_us
        behind_us = UNBOUNDED_US if right[0] in counted else behind_us
        ahead, behind = self.ahead(left, right), self.ahead(right, left)
        found = []
        for i, j in product(left, right):
            said_us = ahead_us - 1 if len(left) == 1 else ahead.get(i, _ANY_US)
            if self.most_us[i, j] < said_us:
                found.append(TimeBound(i, j, self.most_us[i, j]))
            said_us = behind_us - 1 if len(right) == 1 else behind.get(j, _ANY_US)
            if self.most_us[j, i] < said_us:
                found.append(TimeBound(j, i, self.most_us[j, i]))
        return found


def _window_us(most_us: int) -> int:
    return min(max(most_us, 0) + 1, UNBOUNDED_US)
