"""Progress of a stream in its order: the value at or below which no later row is expected.

Let s.A be the value of the ordering column in row s, and PI(s) the position at which s arrives. In a stream
with scrambling factor k, s.A <= s'.A implies PI(s) - k <= PI(s') (WO-Join, §2.2). So once n rows have
arrived, each later row has a value above the greatest value of the first n - k rows. This greatest value is
the *passed* value; it is a watermark on the column. Later rows at or below it break the order.

The values of the last k rows are summarized in blocks of neighbouring rows. Only whole blocks are removed, so
the passed value lags behind the exact one by at most one block, which is a 64th of k.

If k is not declared, it is *monitored*: it is ``MARGIN`` times the greatest scrambling factor that was
measured in the last ``SEEN_FACTORS`` * k rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from catalog.values.stream import Order
from operators.kernels.keys import Int64s
from operators.orders.order_clock import MOST

#: Approximate number of blocks in which the last k rows are kept.
_BLOCKS: Final = 64
#: If k is monitored: maximum and minimum number of rows in a block, and maximum number of blocks per
#: partition. A factor is measured with an error of up to two blocks. With 64 rows per block, a join of three
#: streams of 50 rows/s held 1.17 times the rows of an optimal join, and with 8 rows per block 1.08 times
#: (``tests.bench.oblivious``, two runs).
_MONITORED_ROWS: Final = 64
_LEAST_MONITORED_ROWS: Final = 8
_MOST_MONITORED: Final = 1024

#: A monitored k is MARGIN times the greatest factor in the last SEEN_FACTORS * k rows, but at least
#: LEAST_MONITORED rows.
MARGIN: Final = 1.5
SEEN_FACTORS: Final = 20
LEAST_MONITORED: Final = 64
#: Factors of neighbouring batches are merged while these batches together have at most k / _PARTS rows.
_PARTS: Final = 4

#: Summary of consecutive rows: their number, their greatest value and their least value.
Block = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """Summary of one partition's rows with regard to the order of their stream.

    Attributes:
        blocks: Blocks in order of arrival.
        factor: Scrambling factor of the rows if it is monitored, else 0.
    """

    blocks: Sequence[Sequence[int]] = ()
    factor: int = 0


def scrambling_factor(values: Int64s) -> int:
    """Return the scrambling factor of values in order of arrival.

    >>> scrambling_factor(np.array([1, 2, 3])), scrambling_factor(np.array([3, 1, 2]))
    (0, 2)

    Args:
        values: int64[n], the values of the ordering column.
    """
    if not len(values):
        return 0
    # A row is compared with the first row whose value is at least as great. At that row the running maximum
    # reaches the value of the compared row.
    first = np.searchsorted(np.maximum.accumulate(values), values, side="left")
    return int((np.arange(len(values)) - first).max())


def block_rows(scramble: int) -> int:
    """Return the maximum number of rows in a block."""
    return max(scramble // _BLOCKS, 1)


def ordered_rows(values: Int64s, scramble: int | None) -> OrderedRows:
    """Summarize values in order of arrival.

    >>> ordered_rows(np.array([3, 1, 2, 5]), 2).blocks
    ((2, 3, 1), (1, 2, 2), (1, 5, 5))

    Args:
        values: int64[n], the values of the ordering column.
        scramble: Scrambling factor, which determines the block size; None if the factor is monitored.
    """
    if scramble is None:
        # Use few blocks per partition, unless it has many rows.
        small = min(_MONITORED_ROWS, max(_LEAST_MONITORED_ROWS, len(values) // _BLOCKS))
        head, size = 0, max(small, -(-len(values) // _MOST_MONITORED))
    else:
        head, size = max(len(values) - scramble, 0), block_rows(scramble)
    starts = [*([0] if head else []), *range(head, len(values), size)]
    if not starts:
        return OrderedRows()
    greatest, least = np.maximum.reduceat(values, starts), np.minimum.reduceat(values, starts)
    rows = np.diff([*starts, len(values)])
    blocks = tuple(zip(rows.tolist(), greatest.tolist(), least.tolist(), strict=True))
    return OrderedRows(blocks, scrambling_factor(values) if scramble is None else 0)


@dataclass(frozen=True, slots=True)
class OrderProgress:
    """Progress of a stream in its order.

    Attributes:
        scramble: Scrambling factor k, as declared or as last monitored.
        monitored: Whether the scrambling factor is monitored instead of declared.
        blocks: Blocks of the last rows, in order of arrival.
        passed: Greatest value of the rows before these blocks; None if there are no such rows.
        newest: Greatest value of all rows so far; None before the first row.
        factors: Number of rows and scrambling factor of each of the last batches, if the factor is monitored.
    """

    scramble: int
    monitored: bool = False
    blocks: tuple[Block, ...] = ()
    passed: int | None = None
    newest: int | None = None
    factors: tuple[tuple[int, int], ...] = ()

    @classmethod
    def begun(cls, scramble: int | None) -> OrderProgress:
        """Return the progress before the first row; ``scramble`` is None if the factor is monitored."""
        return cls(LEAST_MONITORED if scramble is None else scramble, monitored=scramble is None)

    @property
    def limit(self) -> int | None:
        """Least value with which a later row keeps the order (a watermark), or None if every value does."""
        return None if self.passed is None else min(self.passed + 1, MOST)

    def after_rows(self, came: OrderedRows) -> OrderProgress:
        """Return the progress after the rows of one more partition."""
        if not came.blocks:
            return self
        scramble, factors = self._monitored(came) if self.monitored else (self.scramble, ())
        size = block_rows(scramble)
        kept = list(self.blocks)
        newest = self.newest
        for rows, greatest, least in came.blocks:
            newest = greatest if newest is None else max(newest, greatest)
            if kept and kept[-1][0] + rows <= size:
                kept[-1] = kept[-1][0] + rows, max(kept[-1][1], greatest), min(kept[-1][2], least)
            else:
                kept.append((rows, greatest, least))
        behind, passed, first = sum(rows for rows, _, _ in kept), self.passed, 0
        while first < len(kept) and behind - kept[first][0] >= scramble:
            behind -= kept[first][0]
            passed = kept[first][1] if passed is None else max(passed, kept[first][1])
            first += 1
        return replace(
            self,
            scramble=scramble,
            blocks=tuple(kept[first:]),
            passed=passed,
            newest=newest,
            factors=factors,
        )

    def reset(self) -> OrderProgress:
        """Return the progress before the first row, but with the current scrambling factor."""
        return OrderProgress(self.scramble, self.monitored)

    def declared(self, scramble: int | None) -> OrderProgress:
        """Return the progress under a new scrambling factor; passed values stay passed.

        After an increase by d, the passed value stays the same until d more rows have arrived. After a
        decrease, the values of rows that are no longer among the last k are passed when the next rows arrive.

        Args:
            scramble: The new factor k. If it is None, the factor is monitored, starting from its current
                value.
        """
        if scramble is not None:
            return replace(self, scramble=scramble, monitored=False, factors=())
        if self.monitored:
            return self
        return replace(self, scramble=max(self.scramble, LEAST_MONITORED), monitored=True, factors=())

    def _monitored(self, came: OrderedRows) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Return the new scrambling factor after more rows, and the factors that determine it."""
        factor = max(came.factor, self._behind_kept(came))
        factors = [*self.factors, (sum(rows for rows, *_ in came.blocks), factor)]
        if len(factors) > 1 and factors[-2][0] + factors[-1][0] <= self.scramble // _PARTS:
            (before, one), (rows, other) = factors[-2:]
            factors[-2:] = [(before + rows, max(one, other))]
        seen = sum(rows for rows, _ in factors)
        while len(factors) > 1 and seen - factors[0][0] >= SEEN_FACTORS * self.scramble:
            seen -= factors.pop(0)[0]
        greatest = max(factor for _, factor in factors)
        return max(LEAST_MONITORED, math.ceil(MARGIN * greatest)), tuple(factors)

    def _behind_kept(self, came: OrderedRows) -> int:
        """Return the largest distance, in rows, of a new row from an earlier row that it should precede."""
        if not self.blocks:
            return 0
        kept, new = np.array(self.blocks), np.array(came.blocks)
        first = np.searchsorted(np.maximum.accumulate(kept[:, 1]), new[:, 2], side="left")
        # Measure from the start of the kept block to the end of the new block, which gives an upper bound.
        begins = np.append(np.cumsum(kept[:, 0]) - kept[:, 0], kept[:, 0].sum())
        ends = kept[:, 0].sum() + np.cumsum(new[:, 0]) - 1
        apart = np.where(first < len(kept), ends - begins[first], 0)
        return int(apart.max())


def following(known: OrderProgress | None, former: Order | None, order: Order | None) -> OrderProgress | None:
    """Return the progress of a stream in the order that a plan version declares.

    Args:
        known: Progress before the batch; None if the stream had no order.
        former: Order of the stream in the previous plan version; None if it had no order.
        order: Order of the stream in the new plan version; None if it has no order.

    Returns:
        The progress under the new scrambling factor. If the column or direction of the order has changed,
            this is the progress before the first row. None if the stream has no order now.
    """
    if order is None:
        return None
    same = former is not None and (former.column, former.descending) == (order.column, order.descending)
    if known is None or not same:
        return OrderProgress.begun(order.scramble)
    return known.declared(order.scramble)
