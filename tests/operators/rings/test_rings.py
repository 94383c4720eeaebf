"""Rings change no result, whatever the invalidation, and scan and hold as many rows as the paper says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.counters.add_up import add_up
from catalog.values.counters.family_counters import ProbeCounters
from catalog.values.plan import FamilyPlan, Plan
from catalog.values.policies.probe import Invalidation, Probe
from operators.bucket.counters import probe_counters
from operators.join.chain import Chain
from planner.build.build_plan import build_plan
from tests.bench.oblivious.ring_costs import JoinRates, expired_rows, ring_work, rings_looked_at
from tests.builders import SECOND_US, a_query, a_stream
from tests.examples import examples
from tests.operators.cases import SETTINGS, Case, cases, run
from tests.operators.harness import Runner

INVALIDATIONS: tuple[Invalidation, ...] = get_args(Invalidation)
PROBES = [Probe("loops", 1, how) for how in INVALIDATIONS] + [
    Probe("hash", cells, how) for cells in (2, 5, 64) for how in INVALIDATIONS
]


def searched(probes: list[Probe]) -> Callable[[Plan], Plan]:
    """Return a rewrite of plans: each version takes another one of the probes."""

    def family(each: FamilyPlan, version: int) -> FamilyPlan:
        return replace(each, probe=probes[version % len(probes)]) if each.key else each

    return lambda plan: replace(plan, families=tuple(family(f, plan.version) for f in plan.families))


@settings(SETTINGS, max_examples=examples(160, short=20))
@given(cases(), st.lists(st.sampled_from([*PROBES, Probe()]), min_size=1, max_size=3))
def test_every_probe_and_invalidation_gives_what_merging_gives(case: Case, probes: list[Probe]) -> None:
    merged, other = run(case), run(case, searched(probes))
    assert other.results == merged.results
    assert other.late == merged.late
    for bucket in other.runner.state:
        for joins in bucket.families.values():
            for chain in joins.chains.values():
                check_rings(chain)


def check_rings(chain: Chain) -> None:
    """Check that what was removed has expired, and that half-empty segments are gone."""
    for side, rings in ({} if chain.rings is None else chain.rings).items():
        for segment in chain.slices[side][-1].segments:
            gone = segment.ts <= rings.gone[segment.key % rings.probe.cells]
            assert rings.removed(segment) == np.count_nonzero(gone)
            assert 2 * np.count_nonzero(gone) < len(segment)


#: Keys of the simulation, as many as its rings, so that these are filled evenly.
CELLS = 20
WINDOW_S, SECONDS, BATCH_S = 6, 24, 0.25


def simulated(probe: Probe, a_per_s: int, b_per_s: int) -> list[list[ProbeCounters]]:
    """Run two streams in order through one bucket, and return the counters of each batch."""
    streams = {n: replace(a_stream(n), lateness_us=0) for n in (1, 2)}
    query = a_query(1, WINDOW_S * SECOND_US, WINDOW_S * SECOND_US, columns_a=(), columns_b=())
    plan = searched([probe])(build_plan([query], streams))
    runner = Runner(streams, slack_us=None)
    random, counted = np.random.default_rng(7), []
    positions = {1: 0, 2: 0}
    for batch in range(round(SECONDS / BATCH_S)):
        tables = {}
        for number, rate in ((1, a_per_s), (2, b_per_s)):
            count = round((batch + 1) * BATCH_S * rate) - positions[number]
            places = np.arange(positions[number], positions[number] + count)
            positions[number] += count
            columns = {
                "ts": pa.array((places + number / 3) / rate * SECOND_US)
                .cast(pa.int64(), safe=False)
                .cast(pa.timestamp("us")),
                "k": pa.array(random.integers(0, CELLS, count)),
                "m": pa.nulls(count, pa.string()),
                "v": pa.nulls(count, pa.int32()),
                "w": pa.nulls(count, pa.int32()),
                "_pos": pa.array(places),
            }
            tables[number] = pa.table(columns)
        runner.step(tables, [plan] if batch == 0 else [])
        (bucket,) = runner.state
        counted.append(list(probe_counters(bucket.families, bucket.clocks)))
    return counted


@pytest.mark.parametrize("probe", [Probe("loops"), *(Probe("hash", CELLS, how) for how in INVALIDATIONS)])
def test_rings_do_the_work_of_equations_1_and_2(probe: Probe) -> None:
    rates = JoinRates(60, 40, WINDOW_S, WINDOW_S)
    counted = simulated(probe, 60, 40)
    steady = [c for batch in counted[len(counted) // 2 :] for c in batch]
    done = add_up(steady, ProbeCounters.KEY)
    seconds, wanted = SECONDS / 2, ring_work(rates, probe)
    for name in ("inserted", "looked", "removed", "scanned"):
        assert sum(getattr(c, name) for c in done) / seconds == pytest.approx(getattr(wanted, name), rel=0.05)


@pytest.mark.parametrize("how", INVALIDATIONS)
def test_only_probing_lets_expired_rows_of_the_faster_stream_pile_up(how: Invalidation) -> None:
    probe, rates = Probe("hash", CELLS, how), JoinRates(8, 200, WINDOW_S, WINDOW_S)
    counted = simulated(probe, 8, 200)
    held = [c for batch in counted[len(counted) // 2 :] for c in batch if c.side == "b"]
    live, expired = (sum(getattr(c, name) for c in held) / len(held) for name in ("live", "expired"))
    assert live == pytest.approx(200 * WINDOW_S, rel=0.05)
    # The others hold a row per ring at most, and those that expire within a batch.
    wanted = 1 + expired_rows(rates, probe, "b") / live
    assert (live + expired) / live == pytest.approx(wanted, rel=0.1 if how == "probe" else 0.05)


def test_greedy_invalidations_look_at_many_more_heads() -> None:
    looks = [rings_looked_at(how, 100) for how in INVALIDATIONS]
    assert looks == [1, 2, 100, 200]
