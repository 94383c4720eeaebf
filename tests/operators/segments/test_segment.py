from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.errors import CorruptSegment
from operators.segments.encoding.row_codec import KEY, POS, TS, encode_rows
from operators.segments.merge import concat, mergeable
from operators.segments.segment import Segment
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.operators.segment_builders import a_segment


def test_a_segment_knows_its_range_of_times_and_versions() -> None:
    segment = a_segment([(1, 30), (1, -10), (2, 20)], epochs=[4, 2, 3])
    assert (segment.t_min, segment.t_max) == (-10, 30)
    assert (segment.epoch_min, segment.epoch_max) == (2, 4)
    assert segment.epochs().tolist() == [4, 2, 3]


def test_an_empty_segment_has_no_range() -> None:
    segment = a_segment([], epoch=7)
    assert (len(segment), segment.t_min, segment.t_max, segment.epoch_max) == (0, 0, 0, 7)


def test_filter_keeps_order_epoch_and_known_bits() -> None:
    segment = a_segment([(1, 10), (2, 20), (3, 30)], epoch=5, bits={2: [True, False, True]})
    kept = segment.filter(segment.ts != 20)
    assert kept.key.tolist() == [1, 3]
    assert (kept.epoch, set(kept.known_bits)) == (5, {2})
    assert kept.has_bit(2).tolist() == [True, True]


def test_filter_keeps_the_version_of_every_row() -> None:
    segment = a_segment([(1, 10), (2, 20), (3, 30)], epochs=[1, 2, 3])
    assert segment.filter(segment.ts != 20).epochs().tolist() == [1, 3]


@pytest.mark.parametrize("bit", [0, 5, 63, 64, 200])
def test_a_bit_added_later_leaves_the_others_alone(bit: int) -> None:
    segment = a_segment([(1, 10), (2, 20)], bits={7: [True, False], 70: [False, True]})
    more = segment.with_bit(bit, segment.ts == 20)
    assert more.has_bit(bit).tolist() == [False, True]
    assert more.has_bit(7).tolist() == [True, False]
    assert more.has_bit(70).tolist() == [False, True]
    assert more.known_bits == {7, 70, bit}
    assert bit not in segment.known_bits


def test_a_bit_that_was_never_evaluated_is_not_set() -> None:
    segment = a_segment([(1, 10)], bits={0: [True]})
    assert not segment.has_bit(1).any()
    assert not segment.has_bit(64).any()


def test_concat_sorts_by_key_and_position() -> None:
    one = a_segment([(1, 10), (5, 20)], first_pos=10)
    other = a_segment([(1, 30), (2, 40), (5, 0)])
    merged = concat([one, other])
    assert list(zip(merged.key.tolist(), merged.pos.tolist(), strict=True)) == [
        (1, 0), (1, 10), (2, 1), (5, 2), (5, 11),
    ]  # fmt: skip
    assert merged.epoch == 1


@settings(SETTINGS, max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2)), min_size=1, max_size=40), st.booleans())
def test_concat_sorts_rows_of_any_parts(rows: list[tuple[int, int]], in_order: bool) -> None:
    """Parts follow each other in the source, or they lie among each other there."""
    if in_order:
        rows = sorted(rows, key=lambda row: row[1])
    keyed = [(key, pos, part) for pos, (key, part) in enumerate(rows)]
    parts = []
    for number in sorted({part for _, part in rows}):
        own = sorted((key, pos) for key, pos, part in keyed if part == number)
        columns = {KEY: [key for key, _ in own], TS: [0] * len(own), POS: [pos for _, pos in own]}
        arrays = [pa.array(values, pa.int64()) for values in columns.values()]
        parts.append(Segment(pa.RecordBatch.from_arrays(arrays, names=list(columns)), 1, ()))
    merged = concat(parts)
    expected = sorted((key, pos) for key, pos, _ in keyed)
    assert list(zip(merged.key.tolist(), merged.pos.tolist(), strict=True)) == expected


def test_concat_of_different_versions_keeps_the_version_of_every_row() -> None:
    one = a_segment([(1, 10)], epoch=1)
    other = a_segment([(1, 20)], epoch=2, first_pos=1)
    mixed = concat([one, other])
    assert mixed.epoch is None
    again = concat([a_segment([(0, 5)], epoch=3, first_pos=9), mixed])
    assert again.epochs().tolist() == [3, 1, 2]


def test_concat_finds_columns_by_name() -> None:
    one = a_segment([(1, 10)], columns={"v": pa.array([1]), "w": pa.array(["x"])})
    other = a_segment([(2, 20)], columns={"w": pa.array(["y"]), "v": pa.array([2])})
    merged = concat([one, other])
    assert merged.rows.column("c.v").to_pylist() == [1, 2]
    assert merged.rows.column("c.w").to_pylist() == ["x", "y"]


def test_segments_merge_only_with_the_same_columns_and_filters() -> None:
    plain = a_segment([(1, 10)], bits={0: [True]}, columns={"v": pa.array([1])})
    assert mergeable(plain, a_segment([(1, 10)], epoch=9, bits={0: [False]}, columns={"v": pa.array([2])}))
    assert mergeable(plain, a_segment([(1, 10)], epochs=[9], bits={0: [False]}, columns={"v": pa.array([2])}))
    assert not mergeable(
        plain, a_segment([(1, 10)], bits={0: [True], 1: [True]}, columns={"v": pa.array([1])})
    )
    assert not mergeable(plain, a_segment([(1, 10)], bits={0: [True]}))


@pytest.mark.parametrize("epochs", [(), (3, 4)])
def test_the_stored_form_gives_the_segment_back(epochs: tuple[int, ...]) -> None:
    segment = a_segment(
        [(-1, 10), (2, -20)], epochs=epochs, bits={3: [True, False]}, columns={"m": pa.array(["ä", None])}
    )
    data = segment.encode()
    read = Segment.decode(data, "id-1")
    assert read.rows.equals(segment.rows)
    assert (read.epoch, set(read.known_bits)) == (segment.epoch, {3})
    assert (read.id, read.stored_bytes) == ("id-1", len(data))
    assert read.encode() == data


def test_every_truncated_form_is_refused() -> None:
    data = a_segment([(1, 10), (2, 20)], columns={"m": pa.array(["x", "y"])}).encode()
    # The last 8 bytes are the end-of-stream mark, which a reader of one batch does not need.
    for length in range(len(data) - 8):
        with pytest.raises(CorruptSegment, match='segment "id-1" cannot be read'):
            Segment.decode(data[:length], "id-1")


def test_other_bytes_are_refused() -> None:
    rows = a_segment([(1, 10)]).rows
    unknown = rows.replace_schema_metadata({"sluice": '{"format": 99, "epoch": 1, "filters": []}'})
    for data in (
        b"not a segment",
        encode_rows(rows),
        encode_rows(rows.replace_schema_metadata({"sluice": "{"})),
    ):
        with pytest.raises(CorruptSegment, match="cannot be read"):
            Segment.decode(data)
    with pytest.raises(CorruptSegment, match="has format 99, this version reads 3"):
        Segment.decode(encode_rows(unknown))
    with pytest.raises(CorruptSegment, match="cannot be read"):
        Segment.decode(encode_rows(rows.replace_schema_metadata({"sluice": "{}"})))
