"""Numbering of the distinct values of a column.

words   0b101  0b111  0b101  0b001     ->  codes  0 1 0 2,  distinct  0b101 0b111 0b001
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from operators.kernels.keys import Int64s, Words

EVERY_PLACE = (1 << 64) - 1


def numbered(words: Words, live: int = EVERY_PLACE) -> tuple[Int64s, Words]:
    """Number the values that words have in some places.

    Args:
        words: uint64[n].
        live: The places, as bits.

    Returns:
        codes: int64[n], number of each word's value.
        distinct: uint64[m], the values that occur, in the order of their first rows.

    >>> [a.tolist() for a in numbered(np.array([5, 7, 5, 1], dtype=np.uint64))]
    [[0, 1, 0, 2], [5, 7, 1]]
    """
    # Not np.unique, which sorts: half a million words of 21 values take it 22 ms instead of 2.1, and a batch
    # of a million rows with 40 filters 734 ms of CPU time instead of 321.
    codes, distinct = pd.factorize(words & np.uint64(live))
    return codes, distinct


def numbered_if_few(words: Words, most: int) -> tuple[Int64s, Words] | None:
    """Number the values of words, or return None where there are more than ``most``; see ``numbered``."""
    codes, distinct = numbered(words)
    return (codes, distinct) if len(distinct) <= most else None
