from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.errors import CorruptSegment
from operators.segments.encoding.patch import Patch, PatchWriter

_selections = st.lists(st.lists(st.booleans(), min_size=1, max_size=20), max_size=8)
_lineages = st.lists(
    st.tuples(
        st.sampled_from([(4,), (9, 2), tuple(range(65))]),
        st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9),
    ),
    max_size=8,
)


@given(_selections, _lineages)
def test_every_part_is_read_back(
    selections: list[list[bool]], lineages: list[tuple[tuple[int, ...], list[int]]]
) -> None:
    writer = PatchWriter()
    kept = [writer.keep(np.flatnonzero(keep), len(keep)) for keep in selections]
    given_words = [
        [np.roll(np.array(values, dtype=np.uint64), n) for n in range(-(-len(filters) // 64))]
        for filters, values in lineages
    ]
    relabelled = [
        writer.relabel(filters, words) for (filters, _), words in zip(lineages, given_words, strict=True)
    ]
    data = writer.encode()
    patch = Patch.decode(data, "p")
    assert (patch.id, patch.stored_bytes) == ("p", len(data))
    for number, keep in zip(kept, selections, strict=True):
        assert patch.kept(number, len(keep)).tolist() == keep
    assert relabelled == list(range(len(lineages)))
    for number, (filters, values), words in zip(relabelled, lineages, given_words, strict=True):
        found, read = patch.lineage(number, len(values))
        assert found == filters
        assert [word.tolist() for word in read] == [word.tolist() for word in words]


def test_equal_selections_are_written_once() -> None:
    writer = PatchWriter()
    numbers = [writer.keep(np.array(index), rows) for index, rows in [([1], 8), ([1], 8), ([1], 7), ([2], 8)]]
    assert numbers == [0, 0, 1, 2]


def test_a_part_of_other_rows_is_refused() -> None:
    writer = PatchWriter()
    writer.keep(np.array([0, 2]), 4)
    writer.relabel((1,), [np.zeros(3, dtype=np.uint64)])
    patch = Patch.decode(writer.encode(), "p")
    for number, rows in ((0, 5), (1, 4)):
        with pytest.raises(CorruptSegment, match=f'patch "p" has no selection {number} from {rows} rows'):
            patch.kept(number, rows)
    for number, rows in ((0, 4), (1, 3)):
        with pytest.raises(CorruptSegment, match=f'patch "p" has no lineage {number} for {rows} rows'):
            patch.lineage(number, rows)


def test_every_truncated_form_is_refused() -> None:
    writer = PatchWriter()
    writer.keep(np.array([0, 9]), 20)
    writer.relabel((1,), [np.arange(20, dtype=np.uint64)])
    data = writer.encode()
    for length in range(len(data)):
        with pytest.raises(CorruptSegment, match='patch "p" cannot be read'):
            Patch.decode(data[:length], "p")


def test_another_format_is_refused() -> None:
    text = json.dumps({"format": 99}).encode()
    with pytest.raises(CorruptSegment, match='patch "p" has format 99, this version reads 1'):
        Patch.decode(struct.pack("<I", len(text)) + text, "p")
