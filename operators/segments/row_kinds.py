"""Kinds of rows: rows of a segment that answer all filters alike and came under the same plan version.

    epoch  _l0          kinds, with live places 0b11         codes
      7    0b101        ((7, 0b01), (7, 0b11), (8, 0b01))      0
      7    0b111                                               1
      7    0b001                                               0
      8    0b101                                               2

What a row may serve follows from its kind, its event time and the plan. So a new plan version decides on a
few kinds, and what is known of each row stays as it is: which rows are alike does not depend on the queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from operators.kernels.distinct import numbered
from operators.kernels.keys import Codes, Int64s, Words

if TYPE_CHECKING:
    from operators.segments.segment import Segment

#: Plan version of a row, then its values in the live places of each lineage word.
Kind = tuple[int, ...]


@dataclass(slots=True, eq=False)
class RowKinds:
    """What was found out last about which rows of a segment are alike.

    Attributes:
        lives: Live places of each lineage word; None before the first look.
        codes: int64[n], or uint8[n] of few kinds: kind of each row; None when all rows are of the same.
        kinds: The kinds that occur; one of version 0 without rows.
    """

    lives: tuple[int, ...] | None = None
    codes: Codes | None = None
    kinds: tuple[Kind, ...] = ()


def kinds_of(segment: Segment, lives: tuple[int, ...]) -> RowKinds:
    """Return the kinds of a segment's rows, told apart by the live places at least.

    Args:
        segment: Its rows; what is found is kept with it.
        lives: Live places of each lineage word, as bits.
    """
    known = segment.alike
    if known.lives is not None and not any(
        live & ~before for live, before in zip(lives, known.lives, strict=True)
    ):
        return known
    codes: Codes | None
    codes, kinds = _epochs(segment)
    for number, live in enumerate(lives):
        more, values = _alike(segment.lineage_word(number), live) if live else (None, (0,))
        codes, kinds = _combined(codes, kinds, more, values)
    known.lives, known.codes, known.kinds = lives, codes, kinds
    return known


def _epochs(segment: Segment) -> tuple[Int64s | None, tuple[Kind, ...]]:
    """Tell rows apart by the plan versions under which they were processed, ascending."""
    if segment.epoch is not None:
        return None, ((segment.epoch,),)
    distinct, inverse = np.unique(segment.epochs(), return_inverse=True)
    codes = inverse.astype(np.int64) if len(distinct) > 1 else None
    return codes, tuple((epoch,) for epoch in distinct.tolist()) or ((0,),)


def _alike(values: Words, live: int) -> tuple[Codes | None, tuple[int, ...]]:
    """Number the values that rows have in the live places of a word; no codes if it is one value."""
    codes, distinct = numbered(values, live)
    # They are kept as long as the segment, and looked up in no order.
    narrow = codes.astype(np.uint8) if len(distinct) <= 1 << 8 else codes
    return narrow if len(distinct) > 1 else None, tuple(distinct.tolist()) or (0,)


def _combined(
    codes: Codes | None, kinds: tuple[Kind, ...], more: Codes | None, values: tuple[int, ...]
) -> tuple[Codes | None, tuple[Kind, ...]]:
    """Tell the rows of each kind apart by one more word."""
    if more is None:
        return codes, tuple((*kind, values[0]) for kind in kinds)
    if codes is None:
        return more, tuple((*kinds[0], value) for value in values)
    width = len(values)
    codes, present = numbered((codes.astype(np.int64) * width + more).view(np.uint64))
    return codes, tuple((*kinds[pair // width], values[pair % width]) for pair in present.tolist())
