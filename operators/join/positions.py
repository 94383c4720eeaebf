"""Tables by position: ``pos`` is ``piece of input << 32 | row`` (``service.inputs``).

    positions   7<<32 | 2,  7<<32 | 4,  8<<32 | 3      places   0  2  4      rows 2 to 4 of pieces 7 and 8

Rows that rest come from few pieces of input and are dense in each, or, of posted events, from one range: a
look-up in a table of all places is some twenty times as fast as sorting them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from operators.kernels.keys import Int64s
from operators.kernels.nearest import nearest_at, take_nearer_at

_ROW_BITS = 32
_ROW = (1 << _ROW_BITS) - 1
#: A table may have so many places per position, and some besides.
_PLACES_PER_POSITION = 16
_PLACES_BESIDES = 1 << 20


@dataclass(frozen=True, slots=True)
class PositionTable:
    """Places for the rows of a range of pieces, of each piece for the same range of rows.

    Attributes:
        first: First piece.
        low: First row of each piece.
        width: Places of each piece.
        size: Places of all pieces.
    """

    first: int
    low: int
    width: int
    size: int

    @classmethod
    def covering(cls, positions: Sequence[Int64s]) -> PositionTable | None:
        """Return a table with places for positions; None where they are too scattered for one.

        Args:
            positions: int64[n] each, n > 0; at least one array.
        """
        pieces = [(int(pos.min()) >> _ROW_BITS, int(pos.max()) >> _ROW_BITS) for pos in positions]
        rows = [pos & _ROW for pos in positions]
        first, low = min(least for least, _ in pieces), min(int(own.min()) for own in rows)
        width = max(int(own.max()) for own in rows) - low + 1
        size = (max(most for _, most in pieces) - first + 1) * width
        if size > _PLACES_PER_POSITION * sum(map(len, positions)) + _PLACES_BESIDES:
            return None
        return cls(first, low, width, size)

    def places(self, pos: Int64s) -> Int64s:
        """Return the places of positions that the table covers, int64[n]."""
        places: Int64s = ((pos >> _ROW_BITS) - self.first) * self.width + (pos & _ROW) - self.low
        return places

    def take_nearer(
        self, ahead: Int64s, behind: Int64s, pos: Int64s, ahead_of_pos: Int64s, behind_of_pos: Int64s
    ) -> None:
        """Take in distances of matches.

        Args:
            ahead: int64[size], distances ahead by place, updated.
            behind: int64[size], distances behind, updated.
            pos: int64[n], positions that the table covers.
            ahead_of_pos: int64[n], distance ahead of each.
            behind_of_pos: int64[n], distance behind of each.
        """
        take_nearer_at(
            *(ahead, behind, pos, ahead_of_pos, behind_of_pos),
            *(_ROW_BITS, self.first, self.low, self.width),
        )

    def nearest(self, ahead: Int64s, behind: Int64s, pos: Int64s, none: int) -> tuple[Int64s, Int64s]:
        """Look distances of matches up, int64[n] each.

        Args:
            ahead: int64[size], distances ahead by place.
            behind: int64[size], distances behind.
            pos: int64[n], positions.
            none: What is returned of positions that the table does not cover.
        """
        return nearest_at(ahead, behind, pos, _ROW_BITS, self.first, self.low, self.width, none)
