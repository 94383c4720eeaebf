"""Pairs on their way to other buckets: their files, and plans that change meanwhile."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from catalog.steps import is_exchanged, plan_streams
from catalog.values.plan import FamilyPlan, Plan
from catalog.values.query import Query
from operators.errors import CorruptPayload
from operators.join.compiled_family import compile_family
from operators.kernels.keys import bucket_of
from operators.segments.encoding.row_codec import KEY
from operators.steps.exchange import arrived, decode_exchange, encode_exchange, rehashed_exchange
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from tests.operators.harness import Runner
from tests.operators.steps.combinations import SECOND_US, stream

STREAMS = {n: stream(n) for n in (1, 2, 3)}
TEXT = (
    "SELECT a.r AS x, b.r AS y, c.r AS z{more} FROM A [RANGE 9 SECONDS] a, B [RANGE 9 SECONDS] b, "
    "C [RANGE 9 SECONDS] c WHERE a.k = b.k AND b.j = c.j{filter}"
)


def query(number: int, more: str = "", condition: str = "") -> Query:
    text = TEXT.format(more=more, filter=condition)
    return bind(text, {s.name: s for s in STREAMS.values()}, name=f"q{number}", query_id=number)


def table(*rows: tuple[int, int, int, int]) -> pa.Table:
    seconds, k, j, r = (list(column) for column in zip(*rows, strict=True))
    count = len(rows)
    return pa.table(
        {
            "ts": pa.array([s * SECOND_US for s in seconds], pa.timestamp("us")),
            "k": pa.array(k, pa.int64()),
            "g": pa.array([0] * count, pa.int32()),
            "v": pa.array([r / 10 for r in r], pa.float64()),
            "r": pa.array(r, pa.int64()),
            "j": pa.array(j, pa.int64()),
            "_pos": pa.array(r, pa.int64()),
        }
    )


def last_step(plan: Plan) -> FamilyPlan:
    (family,) = (family for family in plan.families if is_exchanged(family.stream_a))
    return family


def sent(buckets: int = 3) -> tuple[Runner, Plan]:
    """Return a run that has sent the pairs of one batch: (1, 1) and (1, 2) of q1, (1, 2) of q2."""
    plan = build_plan([query(1), query(2, condition=" AND b.v > 0.1")], STREAMS)
    runner = Runner(STREAMS, buckets)
    runner.step(
        {1: table((1, 7, 0, 1)), 2: table((2, 7, 5, 1), (3, 7, 6, 2)), 3: table((1, 0, 5, 1))}, [plan]
    )
    return runner, plan


def test_each_pair_goes_to_the_bucket_of_its_next_key() -> None:
    runner, plan = sent()
    parts = [part for bucket in range(3) for part in runner.sent_to(bucket)]
    assert sorted(key for part in parts for key in part.rows.column(KEY).to_pylist()) == [5, 6]
    for part in parts:
        assert part.family == last_step(plan).id
        assert set(bucket_of(part.rows.column(KEY).to_numpy(), 3).tolist()) == {part.bucket}
    assert not runner.results
    (data,) = runner.sent
    rehashed = rehashed_exchange(decode_exchange(pa.py_buffer(data)), 5)
    again = decode_exchange(pa.py_buffer(encode_exchange(rehashed)))
    assert {part.bucket for part in again} == set(bucket_of(pa.array([5, 6]).to_numpy(), 5).tolist())


def test_a_plan_that_changes_meanwhile_gets_the_pairs_of_queries_that_stay() -> None:
    runner, plan = sent()
    stays, enters = query(2, condition=" AND b.v > 0.1"), query(3, more=", a.v AS w")
    after = build_plan([stays, enters], STREAMS, plan)
    family = last_step(after)
    layout = compile_family(family, after.version, plan_streams(after), {"a": {}, "b": {}}, None).layouts["a"]
    parts = [part for bucket in range(3) for part in runner.sent_to(bucket)]
    found = arrived(parts, family, layout, after.version)
    assert found is not None
    assert found.key.tolist() == [6], "the other pair is of a query that has gone"
    (bit,) = [place for place, f in enumerate(family.filters_a) if f.columns == ("query 2",)]
    assert found.lineage_word(0).tolist() == [1 << bit]
    # The column that only the new query reads is NULL in pairs that are not its own.
    assert layout.read(found, "a.v").to_pylist() == [None]
    runner.step({3: table((4, 0, 6, 2))}, [after])
    assert runner.results.total() == 1
    assert Counter(query_id for query_id, *_ in runner.results) == {2: 1}


def test_bytes_that_are_no_pairs_are_refused() -> None:
    runner, _ = sent(1)
    (data,) = runner.sent
    for broken in (b"", data[:3], data[:40], data[: len(data) - 200], b"\xff" * 100):
        with pytest.raises(CorruptPayload, match="are not the pairs that a bucket has sent"):
            decode_exchange(pa.py_buffer(broken))
