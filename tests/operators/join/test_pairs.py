from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from catalog.values.query import Query
from operators.join.compiled_family import CompiledFamily, compile_family
from operators.join.pairs import RESULT_COLUMNS, PairChunk, PairTable, residual_sets
from operators.kernels.keys import Int64s
from operators.segments.segment import Segment
from operators.slices.candidates import CandidateSide, SegmentRun
from tests.builders import a_query
from tests.operators.route_totals import route_totals
from tests.operators.segment_builders import STREAMS, a_family, a_segment

V_LESS, W_EQUAL = 'a."v" < b."v"', 'a."w" = b."w"'


def compiled(*queries: Query) -> CompiledFamily:
    return compile_family(a_family(*queries), 1, STREAMS, {"a": {}, "b": {}})


def rows(v: Sequence[int | None], w: Sequence[int | None], ts: Sequence[int]) -> Segment:
    return a_segment([(1, t) for t in ts], columns=values(v, w))


def values(v: Sequence[int | None], w: Sequence[int | None]) -> dict[str, pa.Array]:
    return {"v": pa.array(v, pa.int32()), "w": pa.array(w, pa.int32())}


def build(family: CompiledFamily, a: Segment, b: Segment) -> PairChunk | None:
    """Pair row n of a with row n of b."""
    matched = {
        side: CandidateSide(
            (SegmentRun(s, family.lineages[side].classify(s, family.layouts[side].kept(s)), every(s)),)
        )
        for side, s in (("a", a), ("b", b))
    }
    return family.joins[0].builder.build(matched["a"], matched["b"])


def every(rows: Segment) -> Int64s:
    return np.arange(len(rows))


def sets_of(chunk: PairChunk) -> dict[int, tuple[int, ...]]:
    """Return the query ids of each pair, by position of a's row."""
    routes = chunk.routes.table().ids()
    return {
        pos: routes[route]
        for route, pos in zip(chunk.arrays[0].to_pylist(), chunk.arrays[2].to_pylist(), strict=True)
    }


def test_each_residual_binds_its_own_queries_only() -> None:
    family = compiled(
        a_query(1, 10, residual=V_LESS),
        a_query(2, 10, residual=W_EQUAL),
        a_query(3, 5),
        a_query(4, 10, residual=V_LESS),
    )
    a = rows([1, 9, None, 9], [1, 1, 1, 2], [0, 0, 0, 0])
    b = rows([5, 5, 5, 5], [1, 1, None, 1], [0, 0, 0, 7])
    chunk = build(family, a, b)
    assert chunk is not None
    assert sets_of(chunk) == {0: (1, 2, 3, 4), 1: (2, 3), 2: (3,)}
    assert chunk.chosen.tolist() == [0, 1, 2]
    assert route_totals(chunk.routes).total() == len(chunk.chosen) == 3


def test_a_pair_carries_what_outputs_read_though_residuals_and_filters_read_more() -> None:
    query = a_query(1, 10, residual=V_LESS, filter_a='"w" = 1', columns_a=("w",), columns_b=("w",))
    plan = replace(a_family(query), result_columns_a=(), result_columns_b=("w",))
    family = compile_family(plan, 1, STREAMS, {"a": {}, "b": {}})
    a = a_segment([(1, 0), (1, 0)], bits={0: [True, True]}, columns=values([1, 9], [1, 1]))
    chunk = build(family, a, rows([5, 5], [7, 8], [0, 0]))
    assert chunk is not None
    table = PairTable(family.plan)
    table.add(chunk)
    found = table.finish(plan_version=1, batch=0)
    assert found is not None
    assert found.schema.names == [*RESULT_COLUMNS, "b_w"]
    assert found.column("b_w").to_pylist() == [7]


def test_pairs_that_serve_nobody_are_not_built() -> None:
    family = compiled(a_query(1, 10, residual=V_LESS))
    assert build(family, rows([1], [1], [0]), rows([5], [1], [10])) is None
    assert build(family, rows([6], [1], [0]), rows([5], [1], [0])) is None


def test_a_pair_carries_the_later_event_time_and_both_positions() -> None:
    family = compiled(a_query(1, 10))
    table = PairTable(family.plan)
    chunk = build(family, rows([1, 1], [1, 1], [3, 9]), rows([1, 1], [1, 1], [5, 4]))
    assert chunk is not None
    table.add(chunk)
    found = table.finish(plan_version=4, batch=2)
    assert found is not None
    assert found.column("_event_time").cast(pa.int64()).to_pylist() == [5, 9]
    assert found.column("_pos_a").to_pylist() == found.column("_pos_b").to_pylist() == [0, 1]
    assert set(found.column("_plan_version").to_pylist()) == {4}
    assert set(found.column("_batch").to_pylist()) == {2}


def test_a_batch_without_pairs_gives_no_table() -> None:
    assert PairTable(a_family(a_query(1, 10))).finish(1, 0) is None


def test_distinct_residuals_are_listed_once_with_their_queries() -> None:
    family = a_family(a_query(1, 9, residual=W_EQUAL), a_query(2, 9), a_query(3, 9, residual=W_EQUAL))
    assert residual_sets(family, [0, 1, 2]) == ((W_EQUAL, 0b101),)
    assert residual_sets(family, [1, 2]) == ((W_EQUAL, 0b100),)
    assert residual_sets(family, [1]) == ()
