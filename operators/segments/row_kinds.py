"""Kinds of rows: rows of a segment with equal answers to all filters and the same plan version.

    epoch  _l0          kinds, with live places 0b11         codes
      7    0b101        ((7, 0b01), (7, 0b11), (8, 0b01))      0
      7    0b111                                               1
      7    0b001                                               0
      8    0b101                                               2

The queries that a row may serve follow from its kind, its event time and the plan. So a new plan version
decides about a few kinds, and the codes of the rows stay valid, because they do not depend on the queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from operators.kernels.keys import Codes, Int64s, Words, numbered

#: Plan version of a row, then its values in the live places of each lineage word.
Kind = tuple[int, ...]


@dataclass(slots=True, eq=False)
class RowKinds:
    """Kinds of a segment's rows, as last computed.

    Attributes:
        lives: Live places of each lineage word; None before the first look.
        codes: Kind of each row, int64[n], or uint8[n] if there are few kinds; None if all rows have one kind.
        kinds: The kinds that occur; one kind of version 0 if there are no rows.
    """

    lives: tuple[int, ...] | None = None
    codes: Codes | None = None
    kinds: tuple[Kind, ...] = ()

    def tells(self, lives: tuple[int, ...]) -> bool:
        """Return whether the kinds already distinguish rows by these live places."""
        return self.lives is not None and not any(
            live & ~before for live, before in zip(lives, self.lives, strict=True)
        )

    def tell_apart(self, lives: tuple[int, ...], epochs: int | Int64s, words: Mapping[int, Words]) -> None:
        """Compute the kind of each row.

        Args:
            lives: Live places of each lineage word, as bits.
            epochs: Plan version of each row, int64[n], or the one of all rows.
            words: Lineage words with live places, uint64[n] each, by their number.
        """
        codes: Codes | None
        codes, kinds = _by_epoch(epochs)
        for number, live in enumerate(lives):
            more, values = _alike(words[number], live) if live else (None, (0,))
            codes, kinds = _combined(codes, kinds, more, values)
        self.lives, self.codes, self.kinds = lives, codes, kinds


def _by_epoch(epochs: int | Int64s) -> tuple[Int64s | None, tuple[Kind, ...]]:
    """Divide rows by the plan versions under which they were processed, ascending."""
    if isinstance(epochs, int):
        return None, ((epochs,),)
    distinct, inverse = np.unique(epochs, return_inverse=True)
    codes = inverse.astype(np.int64) if len(distinct) > 1 else None
    return codes, tuple((epoch,) for epoch in distinct.tolist()) or ((0,),)


def _alike(values: Words, live: int) -> tuple[Codes | None, tuple[int, ...]]:
    """Number the values that rows have in the live places of a word; no codes if it is one value."""
    codes, distinct = numbered(values, live)
    # The codes are kept as long as the segment, and looked up in no order.
    narrow = codes.astype(np.uint8) if len(distinct) <= 1 << 8 else codes
    return narrow if len(distinct) > 1 else None, tuple(distinct.tolist()) or (0,)


def _combined(
    codes: Codes | None, kinds: tuple[Kind, ...], more: Codes | None, values: tuple[int, ...]
) -> tuple[Codes | None, tuple[Kind, ...]]:
    """Divide the rows of each kind by one more word."""
    if more is None:
        return codes, tuple((*kind, values[0]) for kind in kinds)
    if codes is None:
        return more, tuple((*kinds[0], value) for value in values)
    width = len(values)
    codes, present = numbered((codes.astype(np.int64) * width + more).view(np.uint64))
    return codes, tuple((*kinds[pair // width], values[pair % width]) for pair in present.tolist())
