"""Ordered joins hold about as many rows as scrambling factors, rates and lag predict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from catalog.values.batch import BatchManifest
from catalog.values.counters.batch_counters import StreamCounters
from catalog.values.plan import Plan
from catalog.values.policies.memory import Memory
from catalog.values.statistics import Measure, Profile, StreamProfile
from catalog.values.stream import Order
from operators.bucket.counters import memory_counters, punctuation_counters, slice_table
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.costs.calibration.shipped import SHIPPED
from planner.costs.rates import family_rates, with_orders
from planner.explain.preview import explain_plan
from planner.explain.rendering.render import plan_document, render_mermaid
from planner.orders.buffers import OrderedStream, buffer_rows
from planner.orders.lag import lag
from service.statistics.order_statistics import order_statistics
from service.statistics.profile import FamilyNames, measured_profile
from tests.operators.harness import Runner
from tests.operators.test_orders import ordered_stream, saving, table_of
from tests.service.statistics.test_profile import manifest

ROWS, BATCH = 4_000, 50
#: Rows by which the second stream lags, and how far rows of each are out of place.
BEHIND, NOISE = 400, {1: 40, 2: 120}


Int64s = np.ndarray[tuple[int], np.dtype[np.int64]]


def run(memory: Memory = Memory()) -> tuple[Plan, list[BatchManifest], dict[int, Int64s]]:
    random = np.random.default_rng(3)
    values = {n: np.argsort(np.arange(ROWS) + random.uniform(0, NOISE[n], ROWS)) for n in (1, 2)}
    streams = {n: ordered_stream(n, name, "bigint", Order("e", NOISE[n])) for n, name in ((1, "A"), (2, "B"))}
    query = bind("SELECT a.v AS v FROM A a JOIN B b ON a.e = b.e", {s.name: s for s in streams.values()})
    plan = saving(build_plan([replace(query, id=1)], streams), memory)
    runner, batches = Runner(streams), []
    for batch in range(ROWS // BATCH):
        tables = {}
        for n in (1, 2):
            begin = batch * BATCH - (BEHIND if n == 2 else 0)
            taken = values[n][max(begin, 0) : max(begin + BATCH, 0)].tolist()
            tables[n] = table_of(streams[n], [(v, 0, 0, 0) for v in taken], max(begin, 0))
        runner.step(tables, [plan] if batch == 0 else [])
        (bucket,) = runner.state
        counted = tuple(
            StreamCounters(n, tables[n].num_rows, 0, 0, None, None, s.order.scramble, s.order.passed)
            for n, s in bucket.streams.items()
            if s.order is not None
        )
        slices = tuple(slice_table(bucket.families, bucket.clocks).counters())
        promises = tuple(punctuation_counters(bucket.families))
        saved = tuple(memory_counters(bucket.families))
        batches.append(manifest(batch, streams=counted, slices=slices, punctuations=promises, memory=saved))
    return plan, batches, values


def test_what_is_held_is_about_what_was_predicted() -> None:
    plan, batches, values = run()
    (family,) = plan.families
    names = {family.id: FamilyNames({"a": 1, "b": 2}, {})}
    measured = measured_profile(batches[-50:], names, 1, now_us=10**12)
    (found,) = measured.families
    a, b = order_statistics(batches[-20:], family.id, found, {1: "A", 2: "B"})
    # What the definition says when as many rows of each had come.
    exact = lag(values[1], ROWS - 200, values[2], ROWS - 200 - BEHIND)
    assert a.lag == pytest.approx(exact, abs=NOISE[2])
    assert b.lag == pytest.approx(-BEHIND, abs=NOISE[2])
    assert (a.stream, a.scramble, a.disordered_share, b.scramble) == ("A", NOISE[1], 0, NOISE[2])
    assert a.predicted_rows is not None
    assert b.predicted_rows is not None
    assert 0.5 * a.predicted_rows < a.held_rows <= a.predicted_rows
    assert b.held_rows <= b.predicted_rows + NOISE[2]

    scrambles = {s.stream_id: s.scramble for s in measured.streams}
    assert all(of is not None and of.origin == "measured" for of in scrambles.values())


def test_latency_is_what_rows_have_waited() -> None:
    plan, batches, values = run(Memory("msf"))
    (family,) = plan.families
    measured = list(order_statistics(batches, family.id, None, {1: "A", 2: "B"}))
    for n, found in zip((1, 2), measured, strict=True):
        # A row is joined once its stream has passed it.
        passed = np.array(
            [
                -1 if c.order_passed is None else c.order_passed
                for c in (c for b in batches for c in b.streams if c.stream_id == n)
            ]
        )
        came = np.arange(ROWS) // BATCH + (BEHIND // BATCH if n == 2 else 0)
        joined = np.searchsorted(passed, values[n])
        seen = came < len(batches)
        waited = np.minimum(joined, len(batches))[seen] - came[seen]
        mean = waited.sum() / np.count_nonzero(joined < len(batches))
        seconds = (batches[-1].committed_at_us - batches[0].started_at_us) / 1e6
        assert found.latency_s == pytest.approx(mean * seconds / len(batches))
        assert found.predicted_latency_s is not None
        # On average a row waits for less than the k rows that may come before it.
        assert 0.3 * found.predicted_latency_s < found.latency_s < 1.5 * found.predicted_latency_s
    plain = list(order_statistics(run()[1], family.id, None, {1: "A", 2: "B"}))
    assert [(side.latency_s, side.predicted_latency_s) for side in plain] == [(0.0, 0.0)] * 2


def test_costs_of_an_ordered_family_are_of_the_rows_it_holds() -> None:
    (family,) = run()[0].families
    streams = tuple(StreamProfile(n, Measure(50.0), scramble=Measure(float(NOISE[n]))) for n in (1, 2))
    rates = family_rates(family, 1, 2, Profile(streams=streams))
    one, other = (OrderedStream(NOISE[n], 50) for n in (1, 2))
    assert rates.a.ordered_rows == buffer_rows(one, other) == 41 + 121
    # Equality holds them, and each step of a band a row more.
    assert [rates.seconds(steps, "a") * 50 for steps in (0, 1, 3)] == pytest.approx([0, 162, 164])
    assumed = family_rates(family, 1, 2, Profile())
    assert (assumed.a.scramble, assumed.a.ordered_rows) == (Measure(64.0, "assumed"), 130)


def test_a_plan_predicts_from_what_streams_declare() -> None:
    (family,) = (plan := run()[0]).families
    profile = with_orders(Profile(), plan.streams)
    models = Objective().models(SHIPPED)
    reports = explain_plan(plan, profile, models)
    document = plan_document(plan, reports)["families"][0]
    assert document["predicted_rows"] == {
        "a": {"scramble": 40.0, "lag": 0.0, "rows": 162.0, "latency_s": 0.0},
        "b": {"scramble": 120.0, "lag": 0.0, "rows": 162.0, "latency_s": 0.0},
    }
    assert document["cost"]["memory_rows"] == pytest.approx(324)
    assert "expects 162 rows of A, 162 rows of B in memory" in render_mermaid(plan, reports)
    assert "expects" not in render_mermaid(plan)
    assert family.ordered
