"""How far a stream has come in its order: no later row stands at or before a known value.

A stream with scrambling factor k has at place n, for all rows s, s' with s.A <= s'.A, PI(s) - k <= PI(s')
(WO-Join, §2.2). So once n rows have come, each later row has a value above the greatest of the first n - k:
that value is the *passed* one, a watermark on the column. Rows that come at or below it break the order.

Values of the last k rows are kept as the greatest of each block of neighbouring rows. A block leaves as a
whole, so the passed value stands at most one block, a 64th of k, behind the exact one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from operators.kernels.keys import Int64s
from operators.orders.order_clock import MOST

#: The last k rows are kept in about so many blocks.
_BLOCKS = 64

#: Rows that came one after the other, and the greatest of their values.
Block = tuple[int, int]


def block_rows(scramble: int) -> int:
    """Return how many rows a block has at most."""
    return max(scramble // _BLOCKS, 1)


def blocks_of(values: Int64s, scramble: int) -> tuple[Block, ...]:
    """Summarize values in order of arrival: those with at least ``scramble`` values behind them as one block.

    >>> blocks_of(np.array([3, 1, 2, 5]), 2)
    ((2, 3), (1, 2), (1, 5))

    Args:
        values: int64[n].
        scramble: Scrambling factor.
    """
    head = max(len(values) - scramble, 0)
    size = block_rows(scramble)
    starts = [*([0] if head else []), *range(head, len(values), size)]
    if not starts:
        return ()
    greatest = np.maximum.reduceat(values, starts)
    rows = np.diff([*starts, len(values)])
    return tuple(zip(rows.tolist(), greatest.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class OrderProgress:
    """Progress of a stream in its order.

    Attributes:
        scramble: Scrambling factor.
        blocks: Blocks of the last rows, in order of arrival.
        passed: Greatest value of the rows before them; None before there are any.
        newest: Greatest value of all rows; None before the first.
    """

    scramble: int
    blocks: tuple[Block, ...] = ()
    passed: int | None = None
    newest: int | None = None

    @property
    def limit(self) -> int | None:
        """Least value of a later row that keeps the order, None for any: the family's watermark."""
        return None if self.passed is None else min(self.passed + 1, MOST)

    def after_rows(self, blocks: Iterable[Sequence[int]]) -> OrderProgress:
        """Return the progress after more rows, given as blocks in order of arrival."""
        size = block_rows(self.scramble)
        kept = list(self.blocks)
        newest = self.newest
        for rows, greatest in blocks:
            newest = greatest if newest is None else max(newest, greatest)
            if kept and kept[-1][0] + rows <= size:
                kept[-1] = kept[-1][0] + rows, max(kept[-1][1], greatest)
            else:
                kept.append((rows, greatest))
        behind, passed, first = sum(rows for rows, _ in kept), self.passed, 0
        while first < len(kept) and behind - kept[first][0] >= self.scramble:
            behind -= kept[first][0]
            passed = kept[first][1] if passed is None else max(passed, kept[first][1])
            first += 1
        return replace(self, blocks=tuple(kept[first:]), passed=passed, newest=newest)

    def reset(self) -> OrderProgress:
        """Return the progress as before the first row."""
        return OrderProgress(self.scramble)
