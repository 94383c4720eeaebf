"""The rules of closed keys, one in each test.

Stream 1 is side a, stream 2 side b; both windows are 10 µs.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from catalog.values.control import Heartbeat
from catalog.values.counters.batch_counters import StreamPunctuations
from catalog.values.query import UNBOUNDED_US
from catalog.values.stream import Punctuations
from operators.bucket.counters import punctuation_counters, slice_table
from operators.bucket.state.manifest import encode_manifest
from operators.bucket.state.store_segments import SegmentIds, store_segments
from operators.closings.closing_rows import matching
from operators.errors import PromiseBroken
from operators.rehash.rehash import rehashed
from operators.segments.encoding.row_codec import KEY, POS, TS
from operators.segments.layout import SideLayout
from operators.segments.segment import COLUMN, Segment
from service.inputs.sources.posted.promises import promises_of
from tests.builders import a_query
from tests.operators.closings.scenes import Scene
from tests.operators.queries import Row, a_table


def test_a_row_behind_a_punctuation_of_its_batch_breaks_the_promise_and_one_before_it_does_not() -> None:
    scene = Scene()
    assert scene.batch(a=[(5, 7)], b=[(4, 7), [7], (5, 7), (5, 8)]) == {(0, 0)}
    assert scene.violating == {2}


def test_rows_of_the_other_side_meet_all_rows_of_the_batch_that_closes_their_key() -> None:
    scene = Scene()
    assert scene.batch(a=[(5, 7)], b=[(4, 7), [7]]) == {(0, 0)}
    # The next row probes and is not stored.
    assert scene.batch(a=[(6, 7), (6, 8)]) == {(0, 0), (1, 0)}
    assert 2 in scene.held("a")
    assert 1 not in scene.held("a")


def test_a_closing_is_forgotten_by_the_watermark_of_its_own_stream_alone() -> None:
    scene = Scene(lateness_us=3)
    scene.batch(a=[(5, 7)], b=[(5, 7), [7]])
    # a's watermark passes far beyond; rows of b may still be in the window of a row of a.
    scene.batch(a=[(500, 9)])
    scene.batch(b=[(5, 7)])
    assert scene.violating == {2}


def test_a_value_that_returns_once_no_window_reaches_back_is_new() -> None:
    scene = Scene()
    scene.batch(a=[(5, 7)], b=[(5, 7), [7]])
    scene.batch(b=[(14, 1)])
    scene.batch(b=[(14, 7)])
    assert scene.violating == {3}
    scene.batch(b=[(15, 1)])
    assert scene.batch(a=[(16, 7)], b=[(15, 7)]) == {(0, 0), (1, 5)}
    assert scene.violating == {3}


def test_a_row_that_does_not_rest_has_its_closing_remembered_for_its_own_window() -> None:
    scene = Scene()
    scene.batch(a=[(5, 7)], b=[(5, 7), [7]])
    scene.batch(a=[(12, 7)])
    scene.batch(b=[(18, 1)])
    assert scene.batch(b=[(18, 7)]) == {(0, 0), (1, 0)}
    assert scene.violating == {3}


def test_promises_are_kept_as_long_as_the_contract_says() -> None:
    long, forever = (
        Scene(Punctuations((("k",),), remember_us=100)),
        Scene(Punctuations((("k",),), remember_us=None)),
    )
    for scene in (long, forever):
        scene.batch(b=[(5, 7), [7]])
        scene.batch(b=[(104, 1)])
        scene.batch(b=[(104, 7), (105, 1)])
        scene.batch(b=[(105, 7)])
    assert long.violating == {3}
    assert forever.violating == {3, 5}


def test_a_promise_from_before_the_first_row_counts_from_its_time_on() -> None:
    scene = Scene(Punctuations((("k",),), remember_us=100))
    scene.batch(b=[[7]])
    scene.batch(a=[(500, 1)])
    scene.batch(b=[(520, 1)])
    scene.batch(b=[(599, 7), (600, 1)])
    scene.batch(b=[(600, 7)])
    assert scene.violating == {2}


def test_a_reset_watermark_makes_no_promise_shorter() -> None:
    scene = Scene(lateness_us=100)
    scene.batch(a=[(5, 7), (1000, 7)])
    scene.runner.step({}, heartbeats=[Heartbeat(1, None)])
    scene.batch(a=[(20, 1)], b=[(20, 7), [7]])
    # The row at 1000 was dropped, and rows of b that would have matched it may still come.
    scene.batch(b=[(1005, 1)])
    assert scene.batch(b=[(1005, 7)]) == set()
    assert scene.violating == {3}


def test_promises_of_control_records_stand_behind_all_rows_of_their_batch() -> None:
    scene = Scene(buckets=3)
    scene.batch(a=[(5, 7)], b=[(4, 7)])
    rows = pa.table({"k": pa.array([7, 8], pa.int64())})
    promises = promises_of(scene.streams[2], ("k",), rows)
    table = a_table(scene.streams[2], [Row(9, 6, {"k": 7, "m": "x", "v": 1, "w": 1})])
    outputs = scene.runner.step({2: table}, promises=[promises, promises_of(scene.streams[1], ("k",), rows)])
    received = sorted((r for output in outputs for r in output.received), key=lambda r: r.stream_id)
    assert received == [StreamPunctuations(1, 2, 2), StreamPunctuations(2, 2, 0)]
    assert scene.violating == set()
    assert scene.batch(b=[(6, 7), (6, 9)]) == {(0, 0), (0, 9)}
    assert scene.violating == {1}
    # A batch with only control records also goes to the buckets of the keys.
    scene.runner.step({}, promises=[promises_of(scene.streams[2], ("k",), pa.table({"k": [9]}))])
    assert sum(c.closed for b in scene.runner.state for c in punctuation_counters(b.families)) == 1
    scene.batch(b=[(6, 9)])
    assert scene.violating == {1, 3}


def test_a_closing_is_remembered_by_the_newest_row_of_the_other_stream() -> None:
    scene = Scene(lateness_us=100)
    # The row at 50 is dropped; b's own rows are far behind it.
    scene.batch(a=[(50, 7)], b=[(5, 1), [7]])
    scene.batch(b=[(120, 1)])
    assert scene.batch(b=[(55, 7)]) == set()
    assert scene.violating == {3}


@pytest.mark.parametrize(("window_b_us", "at_us"), [(1, 14), (90, 15)])
def test_a_closing_is_remembered_for_the_window_on_the_other_side(window_b_us: int, at_us: int) -> None:
    scene = Scene(window_b_us=window_b_us)
    scene.batch(a=[(5, 7)], b=[(5, 7), [7]])
    scene.batch(b=[(at_us, 1)])
    scene.batch(b=[(at_us, 7)])
    assert scene.violating == ({3} if at_us < 15 else set())


def test_closed_keys_are_remembered_through_changes_of_plan_and_other_numbers_of_buckets() -> None:
    scene = Scene()
    scene.batch(
        a=[(5, key) for key in range(9)], b=[*((5, key) for key in range(9)), *([n] for n in range(9))]
    )
    scene.replan(a_query(1, 10), a_query(2, 20, columns_a=("v",)))
    scene.batch(b=[(6, 1)])
    for buckets in (3, 2):
        scene.runner.state = [rehashed(scene.runner.state, n, buckets) for n in range(buckets)]
        scene.runner.buckets, scene.runner.segments = buckets, [{} for _ in range(buckets)]
    scene.batch(b=[(6, key) for key in range(9)])
    assert scene.violating == set(range(18, 28))


def test_a_row_that_does_not_rest_is_covered_when_windows_become_bounded() -> None:
    scene = Scene(query=a_query(1, UNBOUNDED_US, 10))
    scene.batch(a=[(5, 7)], b=[(5, 7), [7]])
    scene.batch(a=[(50, 7)])
    scene.replan(a_query(2, 10))
    scene.batch(b=[(55, 1)])
    scene.batch(b=[(56, 7)])
    assert scene.violating == {3}
    # From 60 on no row of b that is not late can match the row of a that was not stored.
    scene.batch(b=[(60, 1)])
    scene.batch(b=[(61, 7)])
    assert scene.violating == {3}


def test_each_row_of_a_unique_stream_closes_its_key_unless_it_is_late() -> None:
    scene = Scene(None, ("k",))
    scene.batch(a=[(20, 7)], b=[(20, 1), (21, 7)])
    scene.batch(b=[(22, 7), (3, 5)])
    assert scene.violating == {2}
    assert scene.batch(a=[(23, 5)], b=[(22, 5)]) == {(0, 1), (1, 4)}
    assert scene.violating == {2}


def test_rows_at_rest_whose_key_is_closed_leave_the_state() -> None:
    scene = Scene()
    keys = range(40)
    scene.batch(a=[(5, key) for key in keys])
    scene.batch(b=[[key] for key in keys if key % 2])
    assert scene.held("a") == {key for key in keys if key % 2 == 0}


def test_each_slice_counts_its_rows_of_closed_keys() -> None:
    scene = Scene()
    scene.replan(a_query(1, 10), a_query(2, 100))
    scene.batch(a=[(5, key) for key in range(40)])
    # The first slice ends at 10; most rows of the second one are dead and leave, those of the first one stay.
    scene.batch(a=[(30, key) for key in range(40, 80)], b=[(25, 99)])
    scene.batch(b=[*([key] for key in range(30)), *([key] for key in range(40, 45))])
    scene.batch(a=[(31, 1), (31, 200)])
    counters = [
        counters
        for bucket in scene.runner.state
        for counters in slice_table(bucket.families, bucket.clocks).counters()
        if counters.side == "a"
    ]
    assert [(c.slice, c.lying, c.discarded, c.dead) for c in counters] == [(1, 41, 1, 5), (2, 10, 0, 0)]
    done = {name[3]: deeds["closed"] for name, deeds in scene.runner.done.items() if name[2] == "a"}
    assert done == {1: 0, 2: 30}


def test_a_contract_can_say_to_stop() -> None:
    scene = Scene(Punctuations((("k",),), violation="stop"))
    scene.batch(b=[(5, 7), [7]])
    with pytest.raises(PromiseBroken, match=r'a row of stream "B" breaks a promise: k = 7 was closed'):
        scene.batch(b=[(6, 7)])


def test_equal_hashes_are_not_taken_for_equal_keys() -> None:
    layout = SideLayout({"m": "string"}, "ts", ("m",), ("string",), ("m",), None)
    rows = pa.RecordBatch.from_pydict(
        {KEY: [9, 9], TS: [1, 2], POS: [1, 2], COLUMN + "m": ["x", "y"]},
        pa.schema({KEY: pa.int64(), TS: pa.int64(), POS: pa.int64(), COLUMN + "m": pa.string()}),
    )
    closings = pa.RecordBatch.from_arrays(
        [pa.array([9]), pa.array([0]), pa.array([0]), pa.array(["y"])], names=[KEY, TS, POS, COLUMN + "0"]
    )
    assert matching(Segment(rows, 1, ()), layout, closings).tolist() == [False, True]


def test_families_without_contracts_store_what_they_always_did() -> None:
    plain = Scene(None)
    plain.batch(a=[(5, 7)], b=[(5, 7)])
    (bucket,) = plain.runner.state
    store_segments(bucket, SegmentIds("c", 0, 0), lambda *_: None)
    document = json.loads(encode_manifest(bucket))
    assert document["format"] == 5
    assert "closed" not in document


def test_a_row_without_a_partner_is_decided_by_the_closing_of_its_key() -> None:
    scene = Scene(query=a_query(1, 10, kind="outer", preserved=("a",)))
    assert scene.batch(a=[(5, 7), (5, 8)], b=[(5, 7)]) == {(0, 0)}
    # The row of 8 is decided, and so are rows that come later; the one of 9 waits until 15.
    assert scene.batch(b=[[8]]) == {(0, 0), (1, None)}
    assert scene.batch(a=[(6, 8), (5, 9)]) == {(0, 0), (1, None), (2, None)}
    assert scene.batch(b=[(15, 1)]) == {(0, 0), (1, None), (2, None), (3, None)}
    assert scene.batch(b=[(90, 1)]) == {(0, 0), (1, None), (2, None), (3, None)}
    assert set(scene.runner.results.values()) == {1}


def test_a_row_that_the_other_side_closed_before_its_first_row_is_decided() -> None:
    scene = Scene(query=a_query(1, 10, kind="anti", preserved=("a",)))
    assert scene.batch(b=[[7]]) == set()
    assert scene.batch(a=[(5, 7), (5, 8)]) == {(0, None)}


def test_a_contract_that_ends_makes_no_row_a_result_twice() -> None:
    query = a_query(1, 10, kind="anti", preserved=("a",))
    scene = Scene(query=query)
    assert scene.batch(a=[(5, 7), (5, 8)], b=[(4, 1), [7]]) == {(0, None)}
    assert scene.held("a") == {0, 1}
    scene.streams[2] = replace(scene.streams[2], punctuations=None)
    scene.replan(query)
    assert scene.batch(b=[(40, 1)]) == {(0, None), (1, None)}
    assert set(scene.runner.results.values()) == {1}


def test_an_unbounded_outer_join_keeps_nothing_of_closed_keys() -> None:
    keys = range(40)
    scene = Scene(query=a_query(1, UNBOUNDED_US, 1, kind="outer", preserved=("a",)))
    scene.batch(a=[(5, key) for key in keys], b=[(5, key) for key in keys if key % 2])
    scene.batch(b=[[key] for key in keys])
    scene.batch(a=[(6, key) for key in keys])
    found = scene.batch(b=[(9, 41), *([key] for key in range(100, 140))])
    assert sum(pos_b is None for _, pos_b in found) == 60
    assert scene.held("a") == set()
    (joins,) = scene.runner.state[0].families.values()
    assert joins.absence is not None
    assert joins.absence.marks["a"].segments == []


def test_a_row_of_a_semi_join_comes_once_where_another_of_its_segment_does_not_rest() -> None:
    scene = Scene(query=a_query(1, 10, kind="semi", preserved=("a",)))
    scene.batch(b=[(1, 1), (2, 2), [1]])
    # The first row has a closed key; the second one finds one partner that rests, and one in its batch.
    scene.batch(a=[(3, 1), (4, 2)], b=[(5, 2)])
    assert scene.runner.results == Counter({(1, 0, None): 1, (1, 1, None): 1})
    (absence,) = [joins.absence for bucket in scene.runner.state for joins in bucket.families.values()]
    assert absence is not None
    assert absence.found == {"a": 2, "b": 0}
