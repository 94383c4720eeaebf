"""Lineage as PACK makes it: which filters a row passes, in words of 64 bits (cf. CACQ, SIGMOD 2002).

filters   v < 1   v < 3   w > 2        row v=2 w=5  ->  0b110
places      0       1       2
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from operators.distinct_kernel import numbered
from operators.expressions import select_values
from operators.keys import Words
from operators.segment import WORD_BITS


def evaluate_lineage(table: pa.Table, filters: Sequence[Sequence[str]]) -> list[list[Words]]:
    """Evaluate several lists of predicates over the bare columns of a table, each distinct one once.

    DuckDB gives whole words: a column of answers for each predicate, packed here, took twice as long for a
    dozen of them.

    Args:
        table: n rows of one stream.
        filters: Lists of DuckDB texts.

    Returns:
        For each list uint64[n] for every ``WORD_BITS`` predicates, by place; NULL counts as False.
    """
    texts = [
        [_word_sql(group[i : i + WORD_BITS]) for i in range(0, len(group), WORD_BITS)] for group in filters
    ]
    words = iter(select_values(table, [text for group in texts for text in group], '"rows"', np.uint64))
    return [[next(words) for _ in group] for group in texts]


def count_passing(words: Sequence[Words], filters: int) -> list[int]:
    """Return how many rows pass each of so many filters, by place."""
    counts: list[int] = []
    for number, word in enumerate(words):
        codes, values = numbered(word)
        rows = np.bincount(codes, minlength=len(values))
        places = min(filters - number * WORD_BITS, WORD_BITS)
        counts += (int(rows[values >> np.uint64(place) & np.uint64(1) != 0].sum()) for place in range(places))
    return counts


def _word_sql(predicates: Sequence[str]) -> str:
    bits = (
        f"(CASE WHEN {text} THEN {1 << place}::UBIGINT ELSE 0::UBIGINT END)"
        for place, text in enumerate(predicates)
    )
    return " | ".join(bits)
