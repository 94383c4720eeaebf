from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest

from catalog.values.stream import Stream
from operators.segments.layout import SideLayout, side_layout
from planner.build.build_plan import build_plan
from tests.builders import a_query, a_stream
from tests.operators.segment_builders import a_segment


def a_layout(
    key: tuple[str, ...], kinds: tuple[str, ...], columns: tuple[str, ...], stream: Stream | None = None
) -> SideLayout:
    streams = {1: stream or a_stream(1), 2: replace(stream or a_stream(1), id=2)}
    query = a_query(1, 10, key=tuple((name, name) for name in key), key_types=kinds, columns_a=columns)
    (family,) = build_plan([query], streams).families
    return side_layout(family, "a", streams[1])


def test_event_time_and_an_exact_key_are_not_stored_twice() -> None:
    layout = a_layout(("k",), ("bigint",), ("k", "ts", "v"))
    assert layout.stored == ("v",)
    segment = a_segment([(7, 1_000_000)], columns={"v": pa.array([5], pa.int32())})
    assert layout.kept(segment) == {"ts", "k", "v"}
    assert layout.read(segment, "ts").to_pylist() == [datetime(1970, 1, 1, 0, 0, 1)]
    assert layout.read(segment, "k").to_pylist() == [7]
    assert layout.read(segment, "v").to_pylist() == [5]


def test_hashed_keys_are_stored_for_verification() -> None:
    assert a_layout(("m",), ("string",), ()).stored == ("m",)
    assert a_layout(("k", "m"), ("bigint", "string"), ("v",)).stored == ("k", "m", "v")


@pytest.mark.parametrize("kind", ["double", "decimal(10,2)"])
def test_a_key_that_cannot_be_read_back_is_stored_when_a_query_needs_it(kind: str) -> None:
    stream = a_stream(1, 0, [("d", kind)])
    assert a_layout(("d",), (kind,), ("d",), stream).stored == ("d",)
    unread = a_layout(("d",), (kind,), (), stream)
    assert unread.stored == ()
    assert unread.kept(a_segment([])) == {"ts"}


def test_an_int_key_of_common_type_bigint_is_read_back_as_int() -> None:
    layout = a_layout(("v",), ("bigint",), ("v",))
    found = layout.read(a_segment([(-3, 0)]), "v")
    assert (found.type, found.to_pylist()) == (pa.int32(), [-3])


def test_the_event_time_as_key_is_read_from_the_event_time() -> None:
    layout = a_layout(("ts",), ("timestamp",), ("ts",))
    assert (layout.stored, layout.derived_key) == ((), None)


def test_a_column_that_was_not_kept_reads_as_null() -> None:
    layout = a_layout(("k",), ("bigint",), ("v", "w"))
    segment = a_segment([(1, 0), (2, 0)], columns={"v": pa.array([5, 6], pa.int32())})
    assert layout.read(segment, "w").equals(pa.nulls(2, pa.int32()))
    picked = np.array([1, 1, 0])
    assert layout.read(segment, "w", picked).equals(pa.nulls(3, pa.int32()))
    assert layout.read(segment, "v", picked).to_pylist() == [6, 6, 5]
    assert layout.read(segment, "k", picked).to_pylist() == [2, 2, 1]
