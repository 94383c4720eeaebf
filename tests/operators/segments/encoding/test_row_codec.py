"""Rows as bytes and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.segments.encoding.row_codec import KEY, POS, TS, decode_rows, encode_rows
from tests.examples import examples
from tests.operators.cases import SETTINGS

LOWEST, HIGHEST = -(2**63), 2**63 - 1
#: Runs of numbers that fit 32 bits around any place, at the borders of both widths too, and runs that do not.
numbers = st.one_of(
    st.lists(st.integers(LOWEST, HIGHEST), max_size=6),
    st.tuples(
        st.integers(LOWEST, HIGHEST - 2**32),
        st.lists(
            st.sampled_from([0, 1, 255, 256, 65_535, 65_536, 2**31, 2**32 - 1, 2**32]), min_size=1, max_size=6
        ),
    ).map(lambda run: [run[0] + step for step in run[1]]),
)


def rows_of(key: list[int]) -> pa.RecordBatch:
    words = pa.array([k + 2**63 for k in key], pa.uint64())
    with_null = pa.array([None, *key[1:]], pa.int64())
    arrays = [*[pa.array(key, pa.int64())] * 3, words, pa.array([str(k) for k in key]), with_null]
    return pa.RecordBatch.from_arrays(
        [a.slice(0, len(key)) for a in arrays], names=[KEY, TS, POS, "_l0", "c.text", "c.null"]
    )


@settings(SETTINGS, max_examples=examples(100))
@given(numbers)
def test_any_numbers_come_back(key: list[int]) -> None:
    rows = rows_of(key).replace_schema_metadata({"of": "the caller"})
    found = decode_rows(encode_rows(rows))
    assert found.equals(rows)
    assert found.schema.equals(rows.schema, check_metadata=True)


def test_a_part_of_a_batch_takes_no_more_than_its_rows() -> None:
    rows = rows_of(list(range(10_000)))
    assert len(encode_rows(rows.slice(2_000, 10))) < 2_500


def test_close_numbers_take_as_few_bytes_as_their_range() -> None:
    far = np.arange(1_700_000_000_000_000, 1_700_000_000_100_000)
    columns = [pa.array(far), pa.array(far % 200), pa.array((far % 1_000).astype(np.uint64))]
    rows = pa.RecordBatch.from_arrays(columns, names=[TS, KEY, "_l0"])
    assert len(encode_rows(rows)) < (4 + 1 + 2) * len(far) + 2_000


def test_words_of_few_values_take_a_byte_and_their_values() -> None:
    words = np.random.default_rng(3).integers(0, 2**64, 200, dtype=np.uint64)
    rows = pa.RecordBatch.from_arrays([pa.array(np.resize(words, 10_000))], names=["_l0"])
    data = encode_rows(rows)
    assert len(data) < 10_000 + 200 * 21 + 2_000
    assert decode_rows(data).equals(rows)


@settings(SETTINGS, max_examples=examples(60))
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=300), st.sampled_from([1, 20, 21, 400]))
def test_any_words_come_back(values: list[int], repeated: int) -> None:
    words = pa.array(np.repeat(np.array(values, dtype=np.uint64), repeated))
    rows = pa.RecordBatch.from_arrays([words], names=["_l0"])
    assert decode_rows(encode_rows(rows)).equals(rows)


@settings(SETTINGS, max_examples=examples(60))
@given(st.lists(st.integers(0, 2**64 - 1), max_size=200), st.sampled_from([1, 20, 21]), st.integers(0, 30))
def test_words_that_are_numbered_already_come_back(values: list[int], repeated: int, start: int) -> None:
    codes = pa.array(np.repeat(np.arange(len(values), dtype=np.uint8), repeated))
    dictionary = pa.array(values, pa.uint64())
    column = pa.DictionaryArray.from_arrays(codes, dictionary).slice(start)
    rows = pa.RecordBatch.from_arrays([column], names=["_l0"])
    found = decode_rows(encode_rows(rows)).column(0)
    assert found.equals(column.dictionary_decode())


def test_dictionaries_of_others_stay() -> None:
    texts = pa.array(["a", "b", "a"]).dictionary_encode()
    rows = pa.RecordBatch.from_arrays([texts], names=["c.text"])
    assert decode_rows(encode_rows(rows)).equals(rows)


def test_a_stream_without_a_batch_is_an_error() -> None:
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, pa.schema([])).close()
    with pytest.raises(EOFError, match="before its record batch"):
        decode_rows(sink.getvalue())
