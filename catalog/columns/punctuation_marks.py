"""Marks: texts that make a row of a stream a punctuation (``arrow_types.PUNCTUATION_COLUMN``).

["item_id"]        closes this row's value of the column item_id: no later row has this value
["item_id"]<9      closes all values of item_id from this row's value up to 9, excluding 9
["item_id"]<       closes this row's value of item_id and all greater values
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from catalog.columns.arrow_types import arrow_type
from catalog.values.stream import Stream

#: Character of a mark that separates the column names from the end of a range. If the range has no end, this
#: character is the last one of the mark.
RANGE_MARK = "<"
#: Column types, besides decimals, whose values can form ranges. Their values are integers, or can be
#: converted to integers without changing their order.
_RANGED = ("int", "bigint", "date", "timestamp")
#: Most digits of a decimal that fits into a 64-bit integer.
_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True, eq=False)
class Promise:
    """Punctuations that fix the same columns.

    Attributes:
        on: Names of the fixed columns.
        table: One row per punctuation, with the fixed values and the column ``_pos``.
        below: Exclusive end of each punctuation's range, NULL for a range without an end. The attribute is
            None if the punctuations are not ranges.
    """

    on: frozenset[str]
    table: pa.Table
    below: pa.Array | None = None

    def __len__(self) -> int:
        return int(self.table.num_rows)


def has_ranges(kind: str) -> bool:
    """Return whether punctuations can close ranges of a column type.

    >>> has_ranges("bigint"), has_ranges("decimal(9,2)"), has_ranges("decimal(38,2)"), has_ranges("double")
    (True, True, False, False)
    """
    if kind.startswith("decimal"):
        return int(kind[len("decimal(") :].partition(",")[0]) <= _MOST_DIGITS
    return kind in _RANGED


def mark_of(on: Collection[str]) -> str:
    """Return the mark of a punctuation that fixes some columns; marks of ranges begin with this text.

    >>> mark_of(["seq", "item_id"])
    '["item_id", "seq"]'
    """
    return json.dumps(sorted(on))


def marks_of(on: Collection[str], patterns: pa.ChunkedArray) -> int:
    """Return the number of punctuations that fix a set of columns.

    Args:
        on: Names of the columns.
        patterns: Values of ``PUNCTUATION_COLUMN``: the marks of punctuations, and NULL for ordinary rows.

    >>> marks_of(["a"], pa.chunked_array([['["a"]', None, '["a"]<9', '["a", "b"]']]))
    2
    """
    return pc.sum(pc.starts_with(patterns, mark_of(on))).as_py() or 0


def promises_in(stream: Stream, table: pa.Table, patterns: pa.ChunkedArray) -> list[Promise]:
    """Return the punctuations of a table, grouped by the columns that they fix.

    Args:
        stream: Stream of the table's rows.
        table: Rows and punctuations.
        patterns: Column ``PUNCTUATION_COLUMN`` of the table.
    """
    texts = pc.unique(patterns)
    if len(texts) == 1 and not texts.null_count and not pc.match_substring(texts, RANGE_MARK)[0].as_py():
        return [Promise(frozenset(json.loads(texts[0].as_py())), table)]
    parts = pc.split_pattern(patterns, RANGE_MARK, max_splits=1)
    names = pc.list_element(parts, 0)
    ranged = pc.fill_null(pc.greater(pc.list_value_length(parts), 1), False)
    promises = []
    for text in sorted(pc.unique(names.drop_null()).to_pylist()):
        on = frozenset(json.loads(text))
        own = pc.fill_null(pc.equal(names, text), False)
        single = pc.and_not(own, ranged)
        if pc.any(single).as_py():
            promises.append(Promise(on, table.filter(single)))
        wide = pc.and_(own, ranged)
        if pc.any(wide).as_py():
            (name,) = on
            column = stream.column(name)
            assert column is not None, "names were checked when the punctuation was posted"
            ends = pc.list_element(parts.filter(wide), 1).combine_chunks()
            ends = pc.if_else(pc.equal(ends, ""), pa.scalar(None, ends.type), ends)
            promises.append(Promise(on, table.filter(wide), pc.cast(ends, arrow_type(column.type))))
    return promises
