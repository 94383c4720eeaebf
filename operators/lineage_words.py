"""Lineage as PACK makes it: which filters a row passes, in words of 64 bits (cf. CACQ, SIGMOD 2002).

filters   v < 1   v < 3   w > 2        row v=2 w=5  ->  0b110
places      0       1       2
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pyarrow as pa

from operators.distinct_kernel import numbered
from operators.expressions import select_values
from operators.keys import Int64s, Words
from operators.segment import WORD_BITS
from operators.threshold_filters import Thresholds, thresholds

#: Words below it are counted without being numbered first.
_SMALL_WORD = 1 << 12


def evaluate_lineage(table: pa.Table, filters: Sequence[Sequence[str]]) -> list[list[Words]]:
    """Evaluate several lists of predicates over the bare columns of a table, each distinct one once.

    What compares a number with a constant is counted (``operators.threshold_filters``). Of the others DuckDB
    gives whole words: a column of answers for each predicate, packed here, took twice as long for a dozen.

    Args:
        table: n rows of one stream.
        filters: Lists of DuckDB texts.

    Returns:
        For each list uint64[n] for every ``WORD_BITS`` predicates, by place; NULL counts as False.
    """
    counted = [[t for t in thresholds(tuple(group)) if t.answerable(table)] for group in filters]
    texts = [_word_texts(group, known) for group, known in zip(filters, counted, strict=True)]
    asked = [text for group in texts for text in group if text]
    answers = iter(select_values(table, asked, '"rows"', np.uint64))
    found = [[next(answers) if text else None for text in group] for group in texts]
    return [_with_counted(table, words, known) for words, known in zip(found, counted, strict=True)]


def _word_texts(predicates: Sequence[str], counted: Sequence[Thresholds]) -> list[str]:
    """Return what DuckDB is asked for each word; nothing where all of it is counted."""
    known = {place for some in counted for place in some.places}
    asked = [(place, text) for place, text in enumerate(predicates) if place not in known]
    return [
        _word_sql([(place - first, text) for place, text in asked if first <= place < first + WORD_BITS])
        for first in range(0, len(predicates), WORD_BITS)
    ]


def _with_counted(
    table: pa.Table, words: Sequence[Words | None], counted: Sequence[Thresholds]
) -> list[Words]:
    """Return the words with the places that are counted."""
    counts = [some.count(table) for some in counted]
    complete = []
    for number, word in enumerate(words):
        parts = [
            some.words(count, number * WORD_BITS, WORD_BITS)
            for some, count in zip(counted, counts, strict=True)
        ]
        given = [part for part in (word, *parts) if part is not None]
        complete.append(reduce(np.bitwise_or, given))
    return complete


def count_passing(words: Sequence[Words], filters: int) -> list[int]:
    """Return how many rows pass each of so many filters, by place."""
    counts: list[int] = []
    for number, word in enumerate(words):
        values, rows = _counted(word)
        places = min(filters - number * WORD_BITS, WORD_BITS)
        counts += (int(rows[values >> np.uint64(place) & np.uint64(1) != 0].sum()) for place in range(places))
    return counts


def _counted(words: Words) -> tuple[Words, Int64s]:
    """Return distinct words, and how many there are of each; of small words some that do not occur."""
    if len(words) and words.max() < _SMALL_WORD:
        rows = np.bincount(words.view(np.int64))
        return np.arange(len(rows), dtype=np.uint64), rows
    codes, values = numbered(words)
    return values, np.bincount(codes, minlength=len(values))


def _word_sql(predicates: Sequence[tuple[int, str]]) -> str:
    bits = (
        f"(CASE WHEN {text} THEN {1 << place}::UBIGINT ELSE 0::UBIGINT END)" for place, text in predicates
    )
    return " | ".join(bits)
