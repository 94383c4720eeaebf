"""Compiled loops over nearest matches, and tables of distances by position.

A compiled loop takes one pass where numpy would take several. In all loops, a match is *ahead* if
T_b - T_a >= 0, otherwise *behind*. A position is ``piece of input << 32 | row`` (``service.inputs``):

    positions   7<<32 | 2,  7<<32 | 4,  8<<32 | 3      places   0  2  4      rows 2 to 4 of pieces 7 and 8

A table has an entry for each of these rows of each piece, whether the row is stored or not; the *place* of a
position is its index in the table. Stored rows are in few pieces of input and dense in each piece, and posted
events have one dense range of positions, so such a table is small. A look-up in it is about 20 times as fast
as sorting the positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np

from operators.kernels.keys import (
    BOOL,
    BOOLS_READ,
    INT64,
    INT64S,
    INT64S_READ,
    THREE_INT64S,
    TWO_INT64S,
    Bools,
    Int64s,
)

#: Value of a watermark that is not known yet.
NEVER = -(2**62)
_ROW_BITS = 32
_ROW = (1 << _ROW_BITS) - 1
#: Maximum number of table entries per position, and number of entries that any table may have in addition.
_PLACES_PER_POSITION = 16
_PLACES_BESIDES = 1 << 20


@numba.njit(numba.void(INT64S, INT64S, INT64S_READ, INT64S_READ), nogil=True, cache=True)
def take_nearer(ahead: Int64s, behind: Int64s, rows: Int64s, apart: Int64s) -> None:
    """Add matches to the nearest matches of rows: keep the nearest in each direction.

    Args:
        ahead: int64[n], distance of each row's nearest match ahead, updated.
        behind: int64[n], distance of each row's nearest match behind, updated.
        rows: int64[m], the row of each match.
        apart: int64[m], T_b - T_a of each match; negative if the match is behind.
    """
    for place in range(len(rows)):
        row, distance = rows[place], apart[place]
        if distance >= 0:
            if distance < ahead[row]:
                ahead[row] = distance
        elif -distance < behind[row]:
            behind[row] = -distance


@numba.njit(
    numba.void(INT64S, INT64S, INT64S_READ, INT64S_READ, INT64S_READ, INT64, INT64, INT64, INT64),
    nogil=True,
    cache=True,
)
def take_nearer_at(
    ahead: Int64s,
    behind: Int64s,
    pos: Int64s,
    ahead_of_pos: Int64s,
    behind_of_pos: Int64s,
    row_bits: int,
    first: int,
    low: int,
    width: int,
) -> None:
    """Add matches to arrays that have an entry per position (``PositionTable``): keep the nearest.

    Args:
        ahead: int64[places], distances of the nearest matches ahead, updated.
        behind: int64[places], distances of the nearest matches behind, updated.
        pos: int64[n], positions of the matched rows. The table must cover all of them.
        ahead_of_pos: int64[n], distance ahead for each position.
        behind_of_pos: int64[n], distance behind for each position.
        row_bits: Number of bits of a position that contain the row number.
        first: First piece.
        low: First row of each piece.
        width: Number of table entries per piece.
    """
    for number in range(len(pos)):
        piece = pos[number] >> row_bits
        at = (piece - first) * width + pos[number] - (piece << row_bits) - low
        ahead[at] = min(ahead[at], ahead_of_pos[number])
        behind[at] = min(behind[at], behind_of_pos[number])


@numba.njit(THREE_INT64S(INT64S_READ, INT64S_READ, INT64, INT64, BOOLS_READ), nogil=True, cache=True)
def passed_windows(
    ts: Int64s, windows: Int64s, then: int, now: int, ended: Bools
) -> tuple[Int64s, Int64s, Int64s]:
    """Return the rows that an advancing watermark passes by at least one window, with these windows.

    Args:
        ts: int64[n], event times of the rows.
        windows: int64[k], ascending, lengths of the windows.
        then: The watermark before it advances, or ``NEVER`` if there was none.
        now: The watermark after it has advanced, or ``NEVER`` if there is none.
        ended: bool[n], rows that are decided now for all windows. Empty if there are no such rows.

    Returns:
        int64[m] each: index of the row, the first window by which the watermark passes it, and one more than
        the last such window.
    """
    rows, first = np.empty(len(ts), dtype=np.int64), np.empty(len(ts), dtype=np.int64)
    last = np.empty(len(ts), dtype=np.int64)
    found = 0
    for row in range(len(ts)):
        if len(ended) and ended[row]:
            until = len(windows)
        else:
            until = np.searchsorted(windows, now - ts[row], side="right")
        start = until
        if start > 0 and windows[start - 1] > then - ts[row]:
            start = np.searchsorted(windows[: start - 1], then - ts[row], side="right")
        if start < until:
            rows[found], first[found], last[found] = row, start, until
            found += 1
    return rows[:found], first[:found], last[:found]


@numba.njit(
    THREE_INT64S(
        *(INT64S_READ, INT64S_READ, INT64S_READ, INT64S_READ),
        *(INT64S_READ, INT64S_READ, BOOL, INT64),
    ),
    nogil=True,
    cache=True,
)
def without_match(
    first: Int64s,
    last: Int64s,
    ahead: Int64s,
    behind: Int64s,
    windows_a: Int64s,
    windows_b: Int64s,
    ascending: bool,
    digits: int,
) -> tuple[Int64s, Int64s, Int64s]:
    """Return, row by row, the runs of classes for which the row has no match, int64[m] each.

    The runs of a row are as long as possible, but the binary form of a length has at most ``digits`` digits
    from its first 1 to its last 1. So a run of 50 classes (110010) becomes runs of 48 and 2 with four digits,
    and runs of 32, 16 and 2 with one digit.

    Args:
        first: int64[n], the first class for which each row is decided.
        last: int64[n], one more than the last class for which each row is decided.
        ahead: int64[n], distance of each row's nearest match ahead.
        behind: int64[n], distance of each row's nearest match behind.
        windows_a: int64[k], distance below which a match ahead counts, per class.
        windows_b: int64[k], distance below which a match behind counts, per class.
        ascending: Whether the windows on both sides ascend from class to class.
        digits: Maximum number of binary digits of a run length, from its first 1 to its last 1.

    Returns:
        Index of the row, first class of the run, and one more than the run's last class.
    """
    size = 0
    for row in range(len(first)):
        size += max(last[row] - first[row], 0)
    rows = np.empty(size, dtype=np.int64)
    starts, ends = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    found = 0
    for row in range(len(first)):
        start, until = first[row], last[row]
        if ascending and start < until:
            if ahead[row] < windows_a[until - 1]:
                until = np.searchsorted(windows_a[:until], ahead[row], side="right")
            if start < until and behind[row] < windows_b[until - 1]:
                until = np.searchsorted(windows_b[:until], behind[row], side="right")
        while start < until:
            end = until
            if not ascending:
                while start < until and (ahead[row] < windows_a[start] or behind[row] < windows_b[start]):
                    start += 1
                end = start
                while end < until and ahead[row] >= windows_a[end] and behind[row] >= windows_b[end]:
                    end += 1
            while start < end:
                cut = 0
                while (end - start) >> (cut + digits):
                    cut += 1
                length = ((end - start) >> cut) << cut
                rows[found], starts[found], ends[found] = row, start, start + length
                found += 1
                start += length
    return rows[:found], starts[:found], ends[:found]


@numba.njit(
    TWO_INT64S(INT64S_READ, INT64S_READ, INT64S_READ, INT64, INT64, INT64, INT64, INT64),
    nogil=True,
    cache=True,
)
def nearest_at(
    ahead: Int64s, behind: Int64s, pos: Int64s, row_bits: int, first: int, low: int, width: int, none: int
) -> tuple[Int64s, Int64s]:
    """Look up the distances of positions in arrays that have an entry per position, int64[n] each.

    Args:
        ahead: int64[places], distances ahead.
        behind: int64[places], distances behind.
        pos: int64[n], positions, some of which may be outside the table.
        row_bits: Number of bits of a position that contain the row number.
        first: First piece.
        low: First row of each piece.
        width: Number of table entries per piece.
        none: Distance returned for positions outside the table.
    """
    found_ahead, found_behind = (
        np.full(len(pos), none, dtype=np.int64),
        np.full(len(pos), none, dtype=np.int64),
    )
    for place in range(len(pos)):
        piece = (pos[place] >> row_bits) - first
        row = pos[place] - ((pos[place] >> row_bits) << row_bits) - low
        at = piece * width + row
        if piece >= 0 and 0 <= row < width and at < len(ahead):
            found_ahead[place], found_behind[place] = ahead[at], behind[at]
    return found_ahead, found_behind


@dataclass(frozen=True, slots=True)
class PositionTable:
    """Table with an entry for each position in a range of pieces and, in each piece, a range of rows.

    Attributes:
        first: First piece of input.
        low: First row of each piece.
        width: Number of table entries per piece.
        size: Number of table entries in all.
    """

    first: int
    low: int
    width: int
    size: int

    @classmethod
    def covering(cls, positions: Sequence[Int64s]) -> PositionTable | None:
        """Return a table that covers the given positions, or None if they are too scattered.

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
        """Return the table index of each position, int64[n]; the table must cover all positions."""
        places: Int64s = ((pos >> _ROW_BITS) - self.first) * self.width + (pos & _ROW) - self.low
        return places

    def take_nearer(
        self, ahead: Int64s, behind: Int64s, pos: Int64s, ahead_of_pos: Int64s, behind_of_pos: Int64s
    ) -> None:
        """Add matches to arrays by table index: keep the nearest in each direction.

        Args:
            ahead: int64[size], distances ahead by table index, updated.
            behind: int64[size], distances behind by table index, updated.
            pos: int64[n], positions that the table covers.
            ahead_of_pos: int64[n], distance ahead for each position.
            behind_of_pos: int64[n], distance behind for each position.
        """
        take_nearer_at(
            *(ahead, behind, pos, ahead_of_pos, behind_of_pos),
            *(_ROW_BITS, self.first, self.low, self.width),
        )

    def nearest(self, ahead: Int64s, behind: Int64s, pos: Int64s, none: int) -> tuple[Int64s, Int64s]:
        """Look up the distances of matches, int64[n] each.

        Args:
            ahead: int64[size], distances ahead by table index.
            behind: int64[size], distances behind by table index.
            pos: int64[n], positions to look up.
            none: Distance returned for positions that the table does not cover.
        """
        return nearest_at(ahead, behind, pos, _ROW_BITS, self.first, self.low, self.width, none)
