from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

from catalog.times.durations import MAX_DURATION_US, MIN_TIME_US
from catalog.values.control import Heartbeat
from catalog.values.plan import Plan
from catalog.values.query import Query
from operators.bucket.bucket import total_rows
from tests.builders import a_query, a_stream
from tests.operators import segment_builders as segments
from tests.operators.harness import Runner
from tests.operators.queries import Row, a_table

STREAMS = {1: a_stream(1, lateness_us=5), 2: a_stream(2, lateness_us=5)}


def a_plan(*queries: Query, previous: Plan | None = None) -> Plan:
    """Return the plan of queries over these streams, whose rows may be 5 µs late."""
    return segments.a_plan(*queries, previous=previous, streams=STREAMS)


def tables(rows: Mapping[int, Sequence[tuple[int, int]]], **values: object) -> dict[int, pa.Table]:
    """Return rows (position, event time) per stream, all of one key."""
    same = {"k": 1, "m": None, "v": 0, "w": None, **values}
    return {i: a_table(STREAMS[i], [Row(pos, ts, same) for pos, ts in given]) for i, given in rows.items()}


@pytest.mark.parametrize("buckets", [1, 4])
def test_a_row_below_its_own_streams_watermark_is_dropped_and_counted_once(buckets: int) -> None:
    runner = Runner(STREAMS, buckets)
    by_m = a_query(2, 50, key=(("m", "m"),), key_types=("string",))
    runner.step(tables({1: [(0, 100)]}), [a_plan(a_query(1, 50), by_m)])
    # Stream 2 is far behind and yet not late; 95 is at the watermark of stream 1, not below it.
    runner.step(tables({1: [(1, 94), (2, 95)], 2: [(0, 10), (1, 96)]}))
    assert runner.late == {1: {1}}
    assert sum(b.streams[1].late_rows for b in runner.state) == 1
    assert {b.streams[1].rows for b in runner.state} == {2}
    assert runner.results == {(1, 0, 1): 1, (1, 2, 1): 1}


def test_rows_of_one_batch_do_not_judge_each_other() -> None:
    runner = Runner(STREAMS)
    runner.step(tables({1: [(0, 1_000), (1, 0)]}), [a_plan(a_query(1, 50))])
    assert not runner.late


def test_a_late_row_without_a_key_is_counted_too() -> None:
    runner = Runner(STREAMS)
    runner.step(tables({1: [(0, 100)]}), [a_plan(a_query(1, 50, filter_a='"v" > 2'))])
    runner.step(tables({1: [(1, 10)]}, k=None))
    assert runner.late == {1: {1}}


def test_a_heartbeat_applies_after_the_rows_of_its_batch() -> None:
    runner = Runner(STREAMS)
    plan = a_plan(a_query(1, 50))
    runner.step(tables({1: [(0, 100)]}), [plan], [Heartbeat(1, 200)])
    assert runner.state[0].streams[1].watermark.value_us == 200
    runner.step(tables({1: [(1, 199), (2, 200)]}))
    assert runner.late == {1: {1}}


@pytest.mark.parametrize("buckets", [1, 4])
def test_after_a_reset_the_next_rows_alone_say_where_the_watermark_is(buckets: int) -> None:
    runner = Runner(STREAMS, buckets)
    runner.step(tables({1: [(0, 100)], 2: [(0, 100)]}), [a_plan(a_query(1, 50), a_query(2, 20))])
    # A row a year ahead: everything that comes now is late.
    runner.step(tables({1: [(1, 10**13)]}))
    runner.step(tables({1: [(2, 110)], 2: [(1, 110)]}))
    assert runner.late == {1: {2}}
    runner.step(tables({1: [(3, 120)], 2: [(2, 121)]}), heartbeats=[Heartbeat(1, None)])
    assert runner.state[0].streams[1].watermark.value_us == 115
    runner.step(tables({1: [(4, 130), (5, 114)], 2: [(3, 131)]}))
    assert runner.late == {1: {2, 5}}
    assert {(1, 3, 2), (1, 4, 3), (1, 3, 3), (2, 4, 3)} <= runner.results.keys()
    assert set(runner.results.values()) == {1}


def test_a_watermark_is_never_before_the_year_1() -> None:
    oldest = MIN_TIME_US
    streams = {i: a_stream(i, lateness_us=MAX_DURATION_US) for i in (1, 2)}
    runner = Runner(streams)
    runner.step(
        tables({1: [(0, oldest)], 2: [(0, oldest)]}), [segments.a_plan(a_query(1, 50), streams=streams)]
    )
    assert runner.state[0].streams[1].watermark.value_us == MIN_TIME_US
    runner.step(tables({1: [(1, 100)], 2: [(1, 110)]}))
    assert runner.results.keys() == {(1, 0, 0), (1, 1, 1)}


def test_a_heartbeat_purges_what_an_idle_stream_held_back() -> None:
    runner = Runner(STREAMS)
    runner.step(tables({1: [(0, 100)]}), [a_plan(a_query(1, 50))])
    runner.step({}, heartbeats=[Heartbeat(2, 149)])
    assert total_rows(runner.state[0]) == 1
    runner.step({}, heartbeats=[Heartbeat(2, 150)])
    assert total_rows(runner.state[0]) == 0


def test_a_stream_without_rows_holds_the_other_sides_state() -> None:
    runner = Runner(STREAMS)
    runner.step(tables({1: [(0, 0)]}), [a_plan(a_query(1, 1))])
    runner.step(tables({1: [(1, 10**15)]}))
    assert total_rows(runner.state[0]) == 2


def test_a_query_added_without_backfill_gets_pairs_of_rows_processed_since() -> None:
    first = a_plan(a_query(1, 50))
    runner = Runner(STREAMS)
    runner.step(tables({1: [(0, 100)]}), [first])
    runner.step(
        tables({1: [(1, 100)], 2: [(0, 100)]}), [a_plan(a_query(1, 50), a_query(2, 50), previous=first)]
    )
    assert runner.results == {(1, 0, 0): 1, (1, 1, 0): 1, (2, 1, 0): 1}


def test_a_query_with_backfill_gets_held_rows_but_no_pair_from_before() -> None:
    first = a_plan(a_query(1, 50))
    runner = Runner(STREAMS)
    runner.step(tables({1: [(0, 100)], 2: [(0, 100)]}), [first])
    second = a_plan(a_query(1, 50), a_query(2, 20, backfill="state"), previous=first)
    runner.step(tables({2: [(1, 110)]}), [second])
    assert runner.results == {(1, 0, 0): 1, (1, 0, 1): 1, (2, 0, 1): 1}


def test_a_wider_query_takes_over_what_a_narrow_one_held() -> None:
    """Of rows at 91 and 92, a window of 9 up to b's watermark 100 still reaches the second only."""
    first = a_plan(a_query(1, 9))
    runner = Runner(STREAMS, slack_us=50)
    runner.step(tables({1: [(0, 91), (1, 92)], 2: [(0, 105)]}), [first])
    runner.step(tables({2: [(1, 120)]}), [a_plan(a_query(2, 90, backfill="state"), previous=first)])
    assert runner.results == {(2, 1, 1): 1}


def test_a_row_is_held_for_the_new_query_only_with_its_columns() -> None:
    first = a_plan(a_query(1, 50, columns_a=("v",)))
    runner = Runner(STREAMS)
    runner.step(tables({1: [(0, 100)]}), [first])
    wanting_v, wanting_w = (
        a_query(n, 50, columns_a=(name,), backfill="state") for n, name in ((2, "v"), (3, "w"))
    )
    runner.step(tables({2: [(0, 100)]}), [a_plan(wanting_v, wanting_w, previous=first)])
    assert runner.results == {(2, 0, 0): 1}


def test_versions_of_one_batch_are_one_boundary() -> None:
    """A holder that leaves in one version still holds for the query that enters in the next."""
    first = a_plan(a_query(1, 50))
    between = a_plan(previous=first)
    last = a_plan(a_query(2, 50, backfill="state"), previous=between)
    runner = Runner(STREAMS)
    runner.step(tables({1: [(0, 100)]}), [first])
    runner.step(tables({2: [(0, 100)]}), [between, last])
    assert runner.results == {(2, 0, 0): 1}


def test_a_query_of_any_version_of_the_batch_is_backfilled() -> None:
    first = a_plan(a_query(1, 50))
    second = a_plan(a_query(1, 50), a_query(2, 50, backfill="state"), previous=first)
    third = a_plan(a_query(2, 50, backfill="state"), a_query(3, 50), previous=second)
    runner = Runner(STREAMS)
    runner.step(tables({1: [(0, 100)]}), [first])
    runner.step(tables({1: [(1, 100)], 2: [(0, 100)]}), [second, third])
    assert runner.results == {(2, 0, 0): 1, (2, 1, 0): 1, (3, 1, 0): 1}


def test_versions_of_two_batches_are_two_boundaries() -> None:
    first = a_plan(a_query(1, 50))
    between = a_plan(previous=first)
    last = a_plan(a_query(2, 50, backfill="state"), previous=between)
    runner = Runner(STREAMS)
    runner.step(tables({1: [(0, 100)]}), [first])
    runner.step({}, [between])
    runner.step(tables({2: [(0, 100)]}), [last])
    assert not runner.results


def test_a_new_filter_is_evaluated_on_held_rows() -> None:
    first = a_plan(a_query(1, 50, columns_a=("v",)))
    runner = Runner(STREAMS)
    runner.step(tables({1: [(0, 100)]}, v=4), [first])
    runner.step(tables({1: [(1, 100)]}, v=9))
    few, constant = (
        a_query(n, 50, filter_a=text, backfill="state") for n, text in ((2, '"v" < 5'), (3, "1 = 0"))
    )
    runner.step(tables({2: [(0, 100)]}), [a_plan(few, constant, previous=first)])
    assert runner.results == {(2, 0, 0): 1}


def test_a_removed_query_gets_nothing_more_and_its_rows_leave() -> None:
    first = a_plan(a_query(1, 50), a_query(2, 500))
    runner = Runner(STREAMS)
    runner.step(tables({1: [(0, 100)], 2: [(0, 300)]}), [first])
    assert total_rows(runner.state[0]) == 2
    runner.step({}, [a_plan(a_query(1, 50), previous=first)])
    assert total_rows(runner.state[0]) == 1
    assert runner.results == {(2, 0, 0): 1}


def test_self_joins_pair_a_row_with_itself_once() -> None:
    runner = Runner(STREAMS)
    runner.step(tables({1: [(0, 100), (1, 104)]}), [a_plan(a_query(1, 10, 2, streams=(1, 1)))])
    runner.step(tables({1: [(2, 104)]}))
    assert runner.results == {
        (1, a, b): 1 for a, b in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 1), (2, 2))
    }


def test_a_query_that_could_not_read_a_row_does_not_hand_it_on() -> None:
    """q2 needs v, which was not kept, so only q3 holds rows for q4: within 9 µs of b's watermark 101."""
    first = a_plan(a_query(1, 50))
    second = a_plan(
        a_query(2, 50, columns_a=("v",), backfill="state"), a_query(3, 9, backfill="state"), previous=first
    )
    third = a_plan(a_query(4, 50, backfill="state"), previous=second)
    runner = Runner(STREAMS, slack_us=50)
    runner.step(tables({1: [(0, 91), (1, 100)], 2: [(0, 100)]}), [first])
    runner.step(tables({2: [(1, 106)]}), [second])
    assert runner.results == {(1, 0, 0): 1, (1, 1, 0): 1, (3, 1, 1): 1}
    # The slack keeps the row at 91 in the state, but nobody held it.
    assert total_rows(runner.state[0]) > 2
    runner.step(tables({2: [(2, 107)]}), [third])
    assert {r: n for r, n in runner.results.items() if r[0] == 4} == {(4, 1, 2): 1}
