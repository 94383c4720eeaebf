"""Loops about nearest matches, compiled: what numpy does in several passes over all values each."""

from __future__ import annotations

import numba
import numpy as np

from operators.kernels.keys import Int64s
from operators.kernels.types import INT64, INT64S, INT64S_READ, TWO_INT64S


@numba.njit(numba.void(INT64S, INT64S, INT64S_READ, INT64S_READ), nogil=True, cache=True)
def take_nearer(ahead: Int64s, behind: Int64s, rows: Int64s, apart: Int64s) -> None:
    """Take in matches where they are nearer than what is known.

    Args:
        ahead: int64[n], distances of the nearest matches ahead, updated.
        behind: int64[n], the same behind.
        rows: int64[m], the row of each match.
        apart: int64[m], how far ahead it is; below 0: behind.
    """
    for place in range(len(rows)):
        row, distance = rows[place], apart[place]
        if distance >= 0:
            if distance < ahead[row]:
                ahead[row] = distance
        elif -distance < behind[row]:
            behind[row] = -distance


@numba.njit(
    TWO_INT64S(
        *(INT64S_READ, INT64S_READ, INT64S_READ, INT64S_READ),
        *(INT64S_READ, INT64S_READ, INT64S_READ, INT64S_READ, INT64S_READ),
    ),
    nogil=True,
    cache=True,
)
def without_match(
    first: Int64s,
    last: Int64s,
    ahead: Int64s,
    behind: Int64s,
    offsets: Int64s,
    least_a_us: Int64s,
    most_a_us: Int64s,
    least_b_us: Int64s,
    most_b_us: Int64s,
) -> tuple[Int64s, Int64s]:
    """Return rows and blocks of classes by which they have no match, int64[m] each, row by row.

    The blocks of a row are as large as they can be, and have each class once.

    Args:
        first: int64[n], the first class that asks about each row.
        last: int64[n], one more than the last.
        ahead: int64[n], distance of each row's nearest match ahead.
        behind: int64[n], the same behind.
        offsets: int64[levels], the first block of each level (``join.absence_classes.ClassBlocks``).
        least_a_us: int64[blocks], below this distance a match ahead counts for all classes of a block.
        most_a_us: int64[blocks], from this one on it counts for none.
        least_b_us: int64[blocks], the same behind.
        most_b_us: int64[blocks], the same behind.
    """
    size = 0
    for row in range(len(first)):
        size += max(last[row] - first[row], 0)
    rows, blocks = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    found = 0
    for row in range(len(first)):
        number, end = first[row], last[row]
        while number < end:
            level = 0
            while number % (2 << level) == 0 and number + (2 << level) <= end:
                level += 1
            while True:
                block = offsets[level] + (number >> level)
                if ahead[row] >= most_a_us[block] and behind[row] >= most_b_us[block]:
                    rows[found], blocks[found] = row, block
                    found += 1
                    break
                if ahead[row] < least_a_us[block] or behind[row] < least_b_us[block]:
                    break
                level -= 1  # the classes of a block of level 0 agree
            number += 1 << level
    return rows[:found], blocks[:found]


@numba.njit(
    TWO_INT64S(INT64S_READ, INT64S_READ, INT64S_READ, INT64, INT64, INT64, INT64, INT64),
    nogil=True,
    cache=True,
)
def nearest_at(
    ahead: Int64s, behind: Int64s, pos: Int64s, row_bits: int, first: int, low: int, width: int, none: int
) -> tuple[Int64s, Int64s]:
    """Look distances up in columns that are laid out by position (``kernels.positions``), int64[n] each.

    Args:
        ahead: int64[places], distances ahead.
        behind: int64[places], distances behind.
        pos: int64[n], positions, with a place or without.
        row_bits: Bits of a position that are the row.
        first: First piece.
        low: First row of each piece.
        width: Places of each piece.
        none: What is returned of positions without a place.
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
