"""Kinds of rows: rows of a segment with equal answers to all filters and the same plan version.

    epoch  _l0          kinds, with live bits 0b11           codes
      7    0b101        ((7, 0b01), (7, 0b11), (8, 0b01))      0
      7    0b111                                               1
      7    0b001                                               0
      8    0b101                                               2

The queries that a row may serve follow from its kind, its event time and the plan. So a new plan version is
applied to a few kinds only, and the codes of the rows stay valid, because they do not depend on the queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from operators.kernels.keys import Codes, Int64s, Words, numbered

#: Plan version of a row, then the values of the live bits of each lineage word.
Kind = tuple[int, ...]


@dataclass(slots=True, eq=False)
class RowKinds:
    """Kinds of a segment's rows, as they were last computed.

    Attributes:
        lives: Live bits of each lineage word; None if kinds have not been computed yet.
        codes: Kind of each row, int64[n], or uint8[n] if there are few kinds; None if all rows have one kind.
        kinds: The kinds that occur; a single kind of version 0 if there are no rows.
    """

    lives: tuple[int, ...] | None = None
    codes: Codes | None = None
    kinds: tuple[Kind, ...] = ()

    def tells(self, lives: tuple[int, ...]) -> bool:
        """Return whether the kinds already distinguish rows by all of these live bits."""
        return self.lives is not None and not any(
            live & ~before for live, before in zip(lives, self.lives, strict=True)
        )

    def tell_apart(self, lives: tuple[int, ...], epochs: int | Int64s, words: Mapping[int, Words]) -> None:
        """Compute the kind of each row.

        Args:
            lives: Live bits of each lineage word.
            epochs: Plan version of each row, int64[n], or the common version of all rows.
            words: Lineage words with live bits, uint64[n] each, by the number of the word.
        """
        codes: Codes | None
        codes, kinds = _by_epoch(epochs)
        for number, live in enumerate(lives):
            more, values = _alike(words[number], live) if live else (None, (0,))
            codes, kinds = _combined(codes, kinds, more, values)
        self.lives, self.codes, self.kinds = lives, codes, kinds


def _by_epoch(epochs: int | Int64s) -> tuple[Int64s | None, tuple[Kind, ...]]:
    """Number the plan versions under which rows were processed, ascending."""
    if isinstance(epochs, int):
        return None, ((epochs,),)
    distinct, inverse = np.unique(epochs, return_inverse=True)
    codes = inverse.astype(np.int64) if len(distinct) > 1 else None
    return codes, tuple((epoch,) for epoch in distinct.tolist()) or ((0,),)


def _alike(values: Words, live: int) -> tuple[Codes | None, tuple[int, ...]]:
    """Number the values of a word's live bits; return no codes if there is only one value."""
    codes, distinct = numbered(values, live)
    # The codes are kept as long as the segment and are accessed at random, so narrow codes pay.
    narrow = codes.astype(np.uint8) if len(distinct) <= 1 << 8 else codes
    return narrow if len(distinct) > 1 else None, tuple(distinct.tolist()) or (0,)


def _combined(
    codes: Codes | None, kinds: tuple[Kind, ...], more: Codes | None, values: tuple[int, ...]
) -> tuple[Codes | None, tuple[Kind, ...]]:
    """Split the kinds by the values of one more word."""
    if more is None:
        return codes, tuple((*kind, values[0]) for kind in kinds)
    if codes is None:
        return more, tuple((*kinds[0], value) for value in values)
    width = len(values)
    codes, present = numbered((codes.astype(np.int64) * width + more).view(np.uint64))
    return codes, tuple((*kinds[pair // width], values[pair % width]) for pair in present.tolist())
