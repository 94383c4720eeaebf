"""Lineage as computed by PACK: which filters a row passes, in words of 64 bits (cf. CACQ, SIGMOD 2002).

filters   v < 1   v < 3   w > 2        row v=2 w=5  ->  0b110
places      0       1       2
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pyarrow as pa

from catalog.values.plan import PlannedFilter
from operators.filters.expressions import select_values
from operators.kernels.keys import Bools, Codes, Words, numbered, numbered_if_few
from operators.pack.threshold_filters import Thresholds, thresholds
from operators.segments.encoding.row_codec import NUMBERED
from operators.segments.segment import WORD_BITS

#: A column of words with at most this many distinct values is stored as one-byte numbers of these values.
_MOST_VALUES = 1 << 8


def evaluate_lineage(table: pa.Table, filters: Sequence[Sequence[PlannedFilter]]) -> list[list[pa.Array]]:
    """Evaluate lists of filters over the columns of a table, and each distinct filter only once.

    Filters that compare a number with a constant are evaluated by counting (``pack.threshold_filters``).
    DuckDB evaluates the other predicates and packs their answers into words. Returning a column per predicate
    took twice as long for 12 predicates.

    Args:
        table: n rows of one stream.
        filters: Lists of filters.

    Returns:
        For each list, one column of n words per ``WORD_BITS`` filters, in the order of the filters; NULL
        counts as False. Most columns have few distinct words, so they contain one-byte numbers of these words
        (``row_codec.NUMBERED``): a byte is sorted and written faster than a word. Other columns are uint64.
    """
    counted = [
        [t for t in thresholds(tuple(f.threshold for f in group)) if t.answerable(table)] for group in filters
    ]
    texts = [
        _word_texts([f.sql for f in group], known) for group, known in zip(filters, counted, strict=True)
    ]
    asked = [text for group in texts for text in group if text]
    predicates = sorted({f.sql for group in filters for f in group})
    answers = iter(select_values(table, asked, predicates, '"rows"', np.uint64))
    found = [[next(answers) if text else None for text in group] for group in texts]
    return [_with_counted(table, words, known) for words, known in zip(found, counted, strict=True)]


def _word_texts(predicates: Sequence[str], counted: Sequence[Thresholds]) -> list[str]:
    """Return the SQL that DuckDB evaluates for each word, which is empty if counting gives the whole word."""
    known = {place for some in counted for place in some.places}
    asked = [(place, text) for place, text in enumerate(predicates) if place not in known]
    return [
        _word_sql([(place - first, text) for place, text in asked if first <= place < first + WORD_BITS])
        for first in range(0, len(predicates), WORD_BITS)
    ]


def _with_counted(
    table: pa.Table, words: Sequence[Words | None], counted: Sequence[Thresholds]
) -> list[pa.Array]:
    """Return the words as columns, with the answers from counting filled in."""
    counts = [some.count(table) for some in counted]
    complete = []
    for number, word in enumerate(words):
        answers = [some.answers(number * WORD_BITS, WORD_BITS) for some in counted]
        parts = [(count, of) for count, of in zip(counts, answers, strict=True) if of is not None]
        if word is None and len(parts) == 1 and parts[0][0].dtype == np.uint8:
            complete.append(_by_number(*parts[0]))
            continue
        given = [*(() if word is None else (word,)), *(of[count] for count, of in parts)]
        complete.append(_column(reduce(np.bitwise_or, given)))
    return complete


def _column(words: Words) -> pa.Array:
    few = numbered_if_few(words, _MOST_VALUES)
    return pa.array(words) if few is None else _by_number(few[0].astype(np.uint8), few[1])


def _by_number(codes: Codes, values: Words) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(values))


def passing_some(lineage: Sequence[pa.Array], rows: int) -> Bools:
    """Return which of n rows pass at least one filter, bool[n]."""
    some = np.zeros(rows, dtype=np.bool_)
    for codes, values in map(_numbered, lineage):
        some |= (values != 0)[codes]
    return some


def count_passing(lineage: Sequence[pa.Array], filters: int) -> list[int]:
    """Return how many rows pass each of ``filters`` filters, in the order of their bits."""
    counts: list[int] = []
    for number, (codes, values) in enumerate(map(_numbered, lineage)):
        rows = np.bincount(codes, minlength=len(values))
        places = min(filters - number * WORD_BITS, WORD_BITS)
        counts += (int(rows[values >> np.uint64(place) & np.uint64(1) != 0].sum()) for place in range(places))
    return counts


def _numbered(column: pa.Array) -> tuple[Codes, Words]:
    """Return the index of each row's word among the distinct words, and the distinct words."""
    if column.type == NUMBERED:
        return column.indices.to_numpy(), column.dictionary.to_numpy()
    return numbered(column.to_numpy())


def _word_sql(predicates: Sequence[tuple[int, str]]) -> str:
    bits = (
        f"(CASE WHEN {text} THEN {1 << place}::UBIGINT ELSE 0::UBIGINT END)" for place, text in predicates
    )
    return " | ".join(bits)
