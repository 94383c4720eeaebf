"""The profile of counters that the real operators make, against what the rows were drawn from."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from catalog.values.counters.batch_counters import StreamCounters
from catalog.values.counters.family_counters import KeyCounters, SliceCounters
from catalog.values.plan import ALL_BUCKETS, Replication, Strategy
from catalog.values.query import Query
from catalog.values.statistics import Profile
from operators.bucket.batch_output import BatchOutput
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.build.placement.replication import HASHED
from service.statistics.profile import FamilyNames, measured_profile
from tests.builders import EMPTY_BATCH, SECOND_US, a_query, a_stream
from tests.operators.cases import replicated
from tests.operators.harness import Runner

STREAMS = {1: a_stream(1), 2: a_stream(2)}
#: Rows a second of each stream; of both one in four passes ``"v" < 5``, of which the keys do not depend.
RATES = {1: 400, 2: 100}
KEYS = 50
LOW = '"v" < 5'
QUERIES = [a_query(1, 2 * SECOND_US), a_query(2, 5 * SECOND_US, filter_a=LOW)]
FILTERED = [
    a_query(1, 2 * SECOND_US, filter_a=LOW, filter_b=LOW),
    a_query(2, 5 * SECOND_US, filter_a='"w" = 1'),
]


def drawn(rng: np.random.Generator, stream_id: int, seconds: int) -> pa.Table:
    """Rows at a constant rate; every key as often as any other."""
    rows = RATES[stream_id] * seconds
    ts = np.arange(rows, dtype=np.int64) * (SECOND_US // RATES[stream_id])
    key = np.concatenate([rng.permutation(KEYS) for _ in range(rows // KEYS)])
    return pa.table(
        {
            "ts": pa.array(ts).cast(pa.timestamp("us")),
            "k": pa.array(key),
            "m": pa.array(key).cast(pa.string()),
            "v": pa.array(rng.integers(0, 20, rows), pa.int32()),
            "w": pa.array(rng.integers(0, 2, rows), pa.int32()),
            "_pos": pa.array(np.arange(rows)),
        }
    )


def run(
    queries: list[Query],
    strategy: Strategy,
    buckets: int,
    batches: int,
    replication: Replication = HASHED,
) -> Profile:
    """Run twenty seconds in so many batches and measure them all."""
    plan = replicated(
        build_plan(queries, STREAMS, objective=Objective(strategy, cost_model="paper")), replication
    )
    (family,) = plan.families
    rng = np.random.default_rng(11)
    tables = {stream_id: drawn(rng, stream_id, 20) for stream_id in STREAMS}
    runner = Runner(STREAMS, buckets=buckets, slack_us=None)
    cuts = np.linspace(0, 20, batches + 1)
    manifests = []
    for n, (start_s, end_s) in enumerate(itertools.pairwise(cuts)):
        rows = {
            i: table.slice(round(start_s * RATES[i]), round(end_s * RATES[i]) - round(start_s * RATES[i]))
            for i, table in tables.items()
        }
        before = {name: dict(done) for name, done in runner.done.items()}
        outputs = runner.step(rows, [plan] if n == 0 else [])
        slices = tuple(
            SliceCounters(
                family=family_id,
                join=join,
                side=side,
                slice=number,
                touched=done["touched"] - before.get((family_id, join, side, number), {}).get("touched", 0),
                product=done["product"] - before.get((family_id, join, side, number), {}).get("product", 0),
            )
            for (family_id, join, side, number), done in runner.done.items()
        )
        streams = tuple(
            StreamCounters(i, t.num_rows, 0, 0, None, t.column("ts").cast(pa.int64()).to_numpy().max())
            for i, t in rows.items()
        )
        manifests.append(
            replace(
                EMPTY_BATCH,
                batch=n,
                epoch=1,
                streams=streams,
                slices=slices,
                started_at_us=n,
                committed_at_us=n,
                filters=tuple(counters for output in outputs for counters in output.filters),
                keys=_keys(family.id, outputs),
            )
        )
    bits = [("a", f) for f in family.filters_a] + [("b", f) for f in family.filters_b]
    names = FamilyNames({"a": 1, "b": 2}, {(side, f.bit): f.sql for side, f in bits})
    return measured_profile(manifests, {family.id: names}, buckets, now_us=10**15)


def _keys(family_id: str, outputs: list[BatchOutput]) -> tuple[KeyCounters, ...]:
    """Sum the buckets' counters, as the commit does."""
    found = []
    for side in "ab":
        own = [c for output in outputs for c in output.keys if c.side == side]
        rows, keys, squares, copies = (
            sum(getattr(c, n) for c in own) for n in ("rows", "keys", "squares", "copies")
        )
        found.append(KeyCounters(family_id, side, rows, keys, max(c.largest for c in own), squares, copies))
    return tuple(found)


@pytest.mark.parametrize("replication", [Replication(ALL_BUCKETS), Replication(2), Replication(1, ((3, 4),))])
def test_what_is_measured_of_keys_does_not_depend_on_where_they_rest(replication: Replication) -> None:
    (hashed,) = run(QUERIES, "mem-opt", 5, 4).families
    (family,) = run(QUERIES, "mem-opt", 5, 4, replication).families
    assert family.join_selectivity.value == pytest.approx(1 / KEYS, rel=0.12)
    assert (family.keys_a, family.keys_b) == (hashed.keys_a, hashed.keys_b)
    assert (family.skew_a, family.skew_b) == (hashed.skew_a, hashed.skew_b)


@pytest.mark.parametrize(("buckets", "batches"), [(1, 40), (3, 5)])
@pytest.mark.parametrize("strategy", ["mem-opt", "cpu-opt", "pullup", "pushdown", "unshared"])
@pytest.mark.parametrize("queries", [QUERIES, FILTERED], ids=["one filter", "filters on both"])
def test_measured_numbers_are_those_of_the_rows(
    queries: list[Query], strategy: Strategy, buckets: int, batches: int
) -> None:
    found = run(queries, strategy, buckets, batches)

    assert [s.rate_per_s.value for s in found.streams] == pytest.approx([400, 100], rel=1e-9)
    assert {(f.stream_id, f.sql) for f in found.filters} == {
        (side.stream_id, side.filter) for q in queries for side in (q.a, q.b) if side.filter is not None
    }
    for profile in found.filters:
        expected = 0.25 if profile.sql == LOW else 0.5
        assert profile.selectivity.value == pytest.approx(expected, rel=0.12)
    (family,) = found.families
    assert family.join_selectivity.value == pytest.approx(1 / KEYS, rel=0.12)
    assert found.batch_s.value == pytest.approx(20 / batches, rel=0.02)
    assert family.keys_a is not None
    assert family.keys_a.value == pytest.approx(KEYS, rel=0.05)
    assert family.skew_a is not None
    assert family.skew_a.value == pytest.approx(1, abs=0.15)
