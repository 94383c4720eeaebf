from __future__ import annotations

import pyarrow as pa
import pytest

from catalog.values.counters.family_counters import FilterCounters
from catalog.values.plan import Plan, Strategy
from operators.pack.pack import control_payloads, packer
from operators.pack.pack_plan import pack_plan
from operators.pack.payload import Payload
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from tests.builders import a_query
from tests.operators.queries import Row, a_table
from tests.operators.segment_builders import STREAMS, a_plan

ONE_QUERY = a_plan(a_query(1, 10))


def rows_of(ts: list[int], k: list[int | None] | None = None, v: list[int | None] | None = None) -> pa.Table:
    keys = k or [1] * len(ts)
    values = v or [0] * len(ts)
    rows = [Row(n, t, {"k": keys[n], "m": None, "v": values[n], "w": None}) for n, t in enumerate(ts)]
    return a_table(STREAMS[1], rows)


def packed(
    table: pa.Table, plan: Plan = ONE_QUERY, buckets: int = 1, bound: int | None = None
) -> list[Payload]:
    return packer(pack_plan(plan, STREAMS[1], buckets)).pack(table, 5, 7, bound)


def test_every_bucket_gets_the_header_and_each_row_goes_to_one() -> None:
    payloads = packed(rows_of([30, 10, 20, 40], k=[1, 2, 3, None]), buckets=3)
    family = ONE_QUERY.families[0].id
    positions = []
    for payload in payloads:
        (header,) = payload.streams
        assert (payload.order, payload.batch) == (5, 7)
        assert (header.stream_id, header.rows, header.rejected_rows, header.max_event_time_us) == (
            1,
            4,
            0,
            40,
        )
        if (family, "a") in payload.rows:
            positions += payload.rows[family, "a"].column("_pos").to_pylist()
    # The row without a key goes nowhere, but its event time counts.
    assert sorted(positions) == [0, 1, 2]


def test_rows_are_sorted_by_key_then_position() -> None:
    (payload,) = packed(rows_of([1, 2, 3, 4], k=[9, -5, 9, 0]))
    (rows,) = payload.rows.values()
    assert rows.column("_key").to_pylist() == [-5, 0, 9, 9]
    assert rows.column("_pos").to_pylist() == [1, 3, 0, 2]


def test_rows_without_event_time_are_rejected_and_counted() -> None:
    table = rows_of([1, 2])
    without = table.set_column(0, "ts", pa.array([None, 5], pa.timestamp("us")))
    (payload,) = packed(without)
    (header,) = payload.streams
    assert (header.rows, header.rejected_rows, header.max_event_time_us) == (2, 1, 5)
    assert [rows.num_rows for rows in payload.rows.values()] == [1]


def test_an_empty_partition_is_a_header() -> None:
    for payload in packed(rows_of([]), buckets=2, bound=100):
        assert [h.max_event_time_us for h in payload.streams] == [None]
        assert not payload.rows
        assert not payload.suspects


def test_each_distinct_filter_leaves_one_bit() -> None:
    plan = a_plan(
        a_query(1, 10, filter_a='"v" < 5'),
        a_query(2, 10, filter_a='"v" > 2'),
        a_query(3, 9, filter_a='"v" < 5'),
    )
    assert [f.sql for f in plan.families[0].filters_a] == ['"v" < 5', '"v" > 2']
    (payload,) = packed(rows_of([1, 1, 1, 1], v=[0, 4, 9, None]), plan)
    (rows,) = payload.rows.values()
    # The last row passes neither filter, so no query takes it.
    assert rows.column("_l0").to_pylist() == [0b01, 0b11, 0b10]


def test_a_query_without_filter_takes_every_row() -> None:
    plan = a_plan(a_query(1, 10, filter_a='"v" < 5'), a_query(2, 10))
    (payload,) = packed(rows_of([1, 1], v=[0, 9]), plan)
    (rows,) = payload.rows.values()
    assert rows.column("_l0").to_pylist() == [1, 0]


@pytest.mark.parametrize(("strategy", "taken"), [("pullup", {0: 1, 1: 0}), ("mem-opt", {0: 1})])
def test_selection_pull_up_takes_every_row_with_a_key(strategy: Strategy, taken: dict[int, int]) -> None:
    plan = build_plan(
        [a_query(1, 10, filter_a='"v" < 5')],
        STREAMS,
        objective=Objective(strategy, cost_model="paper"),
    )
    (payload,) = packed(rows_of([1, 1, 1], k=[1, 1, None], v=[0, 9, 0]), plan)
    (rows,) = payload.rows.values()
    # Position and lineage: the row that passes no filter comes with its empty lineage.
    assert dict(zip(rows.column("_pos").to_pylist(), rows.column("_l0").to_pylist(), strict=True)) == taken


def test_rows_are_counted_per_filter_in_one_payload() -> None:
    """Also rows without a key, and late ones; but no row without an event time."""
    plan = a_plan(a_query(1, 10, filter_a='"v" < 5', filter_b='"v" > 2'), a_query(2, 10, filter_a='"w" = 1'))
    family = plan.families[0].id
    table = rows_of([1, 2, 3, 4], k=[1, 2, None, 4], v=[0, 9, 4, 4])
    without = table.set_column(0, "ts", pa.array([None, 2, 3, 4], pa.timestamp("us")))
    found = [payload.filters for payload in packed(without, plan, buckets=3, bound=3) if payload.filters]
    assert found == [(FilterCounters(family, "a", 0, 3, 2), FilterCounters(family, "a", 1, 3, 0))]
    assert not any(payload.filters for payload in packed(rows_of([]), plan))


def test_a_filter_that_two_families_have_is_counted_for_both() -> None:
    plan = a_plan(a_query(1, 10, filter_a='"v" < 5'), a_query(2, 10, filter_a='"v" < 5', streams=(1, 3)))
    (payload,) = packed(rows_of([1, 2], v=[0, 9]), plan)
    assert [(c.family, c.rows, c.passed) for c in payload.filters] == [(f.id, 2, 1) for f in plan.families]


def test_only_what_queries_need_is_stored() -> None:
    plan = a_plan(a_query(1, 10, columns_a=("k", "ts", "v")), a_query(2, 10, columns_a=("w",)))
    (payload,) = packed(rows_of([1]), plan)
    (rows,) = payload.rows.values()
    # k is read back from the key, ts from the event time.
    assert rows.schema.names == ["_key", "_ts", "_pos", "c.v", "c.w"]
    assert packer(pack_plan(plan, STREAMS[1], 1)).columns() == {"ts", "k", "v", "w"}


def test_a_stream_feeds_every_family_side_it_is_part_of() -> None:
    plan = a_plan(a_query(1, 10, streams=(1, 1)), a_query(2, 10), a_query(3, 10, streams=(1, 3)))
    (payload,) = packed(rows_of([1]), plan)
    sides = sorted(
        (f.stream_a, f.stream_b, side) for f in plan.families for i, side in payload.rows if i == f.id
    )
    assert sides == [(1, 1, "a"), (1, 1, "b"), (1, 2, "a"), (1, 3, "a")]


def test_rows_below_the_bound_travel_whole_to_one_bucket() -> None:
    payloads = packed(rows_of([9, 10, 3], k=[1, 2, None]), buckets=3, bound=10)
    (carrier,) = [p for p in payloads if p.suspects]
    suspects = carrier.suspects[1]
    assert suspects.column("_pos").to_pylist() == [0, 2]
    assert suspects.schema.names == ["ts", "k", "m", "v", "w", "_pos", "_ts"]
    assert not any(p.suspects for p in packed(rows_of([10, 11]), buckets=3, bound=10))


def test_a_stream_that_no_query_uses_any_more_still_sends_its_clock() -> None:
    none = a_plan(previous=ONE_QUERY)
    (payload,) = packed(rows_of([4, 8]), none)
    assert [h.max_event_time_us for h in payload.streams] == [8]
    assert not payload.rows


def test_rows_may_be_late_only_below_the_bound() -> None:
    compiled = packer(pack_plan(ONE_QUERY, STREAMS[1], 1))
    assert compiled.may_have_late_rows(rows_of([9, 10]), 10)
    assert not compiled.may_have_late_rows(rows_of([10]), 10)
    assert not compiled.may_have_late_rows(rows_of([]), 10)


def test_control_records_go_to_every_bucket() -> None:
    assert [p.control for p in control_payloads(["x", "y"], 0, 3, 2)] == [("x", "y"), ("x", "y")]
