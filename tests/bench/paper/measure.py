"""One setting measured: the same rows through several plans, counted and timed in steady state.

    0 s ── state fills ── largest window ── measured ── end

A window that is still filling costs less than the paper's equations say, so nothing counts before the event
time of the largest window.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from catalog.values.plan import Plan
from planner.families.families import SIDES, side_chain
from tests.bench.paper.arrivals import STREAMS, arrivals
from tests.bench.paper.counted import Expected, counted_terms, expected_cost, operator_males_per_s
from tests.bench.paper.plans import BY_NAME
from tests.bench.paper.setting import Setting
from tests.pipeline import Ran, Rows, check_results, race


@dataclass(frozen=True, slots=True)
class Shape:
    """How a setting is measured.

    Attributes:
        seconds: Event time of the input.
        batch_s: Event time of a micro-batch.
        seed: Seed of the arrivals.
    """

    seconds: float = 45.0
    batch_s: float = 1.0
    seed: int = 2006


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one plan did in one setting; a row of the CSV files. Per second means second of event time.

    Attributes:
        distribution: Windows.
        queries: Number of queries.
        filter_selectivity: S_σ; empty without selection.
        join_selectivity: S_1.
        rate_per_s: The paper's rate of each stream.
        factor: What it was multiplied by.
        strategy: How the queries are joined.
        joins: Joins of the plan.
        slices: Slices of side a, all joins together.
        state_rows: Rows held at the end of a batch, mean.
        state_bytes: Encoded bytes of them.
        expected_state_rows: What the paper's model says.
        probe: Counted comparisons of males with rows held, per second.
        purge: Counted comparisons that purge: a male and a slice each.
        route: Counted comparisons of pairs with windows inside a slice.
        union: Counted merges.
        filter: Counted selections judged, on rows and pairs.
        comparisons: Sum of the five.
        expected_comparisons: What the paper's model says.
        operator_males: Males times slices of their join, per second: what C_sys multiplies.
        touched: Pairs of equal key that the engine looked at, per second.
        pairs: Pairs written, per second.
        results: Results of all queries, per second.
        input_rows: Rows measured, of both streams.
        seconds: Event time measured.
        batches: Batches measured.
        segments: Segments held at the end of a batch, mean.
        wall_s: Wall clock of the measured batches, each taken as the median one: steady batches are alike,
            and what else the machine does for a moment is none of theirs.
        cpu_s: CPU time of them, likewise.
    """

    distribution: str
    queries: int
    filter_selectivity: float | None
    join_selectivity: float
    rate_per_s: float
    factor: float
    strategy: str
    joins: int
    slices: int
    state_rows: float
    state_bytes: float
    expected_state_rows: float
    probe: float
    purge: float
    route: float
    union: float
    filter: float
    comparisons: float
    expected_comparisons: float
    operator_males: float
    touched: float
    pairs: float
    results: float
    input_rows: int
    seconds: float
    batches: int
    segments: float
    wall_s: float
    cpu_s: float


def batches_of(setting: Setting, shape: Shape) -> list[list[Rows]]:
    """Return the input of a setting cut into micro-batches."""
    drawn = {
        name: arrivals(name, setting.arrivals_per_s, setting.join_selectivity, shape.seconds, shape.seed)
        for name in STREAMS
    }
    count = round(shape.seconds / shape.batch_s)
    return [
        [
            Rows(BY_NAME[name].id, rows.table(number * shape.batch_s, (number + 1) * shape.batch_s))
            for name, rows in drawn.items()
        ]
        for number in range(count)
    ]


def measure(setting: Setting, plans: Mapping[str, Plan], shape: Shape) -> list[Measurement]:
    """Run all plans over a setting's input and return what each did, in the order of the plans."""
    with tempfile.TemporaryDirectory(prefix="sluice-paper-") as directory:
        ran = race(plans, batches_of(setting, shape), Path(directory))
    check_results(ran)
    first = round(max(setting.windows_s) / shape.batch_s)
    return [_measurement(setting, shape, name, plan, ran[name][first:]) for name, plan in plans.items()]


def _measurement(
    setting: Setting, shape: Shape, name: str, plan: Plan, batches: Sequence[Ran]
) -> Measurement:
    seconds = len(batches) * shape.batch_s
    (family,) = plan.families
    terms = counted_terms(setting, plan, batches, shape.batch_s)
    expected: Expected = expected_cost(setting, plan, shape.batch_s)
    slices = [s for batch in batches for s in batch.slices]
    return Measurement(
        distribution=setting.distribution,
        queries=len(setting.windows_s),
        filter_selectivity=setting.filter_selectivity,
        join_selectivity=setting.join_selectivity,
        rate_per_s=setting.rate_per_s,
        factor=setting.factor,
        strategy=name,
        joins=len(family.joins),
        slices=sum(len(side_chain(join, SIDES[0])) for join in family.joins),
        state_rows=fmean([b.state_rows for b in batches]),
        state_bytes=fmean([b.state_bytes for b in batches]),
        expected_state_rows=expected.memory_rows,
        probe=terms.probe,
        purge=terms.purge,
        route=terms.route,
        union=terms.union,
        filter=terms.filter,
        comparisons=terms.total,
        expected_comparisons=expected.comparisons,
        operator_males=operator_males_per_s(batches, shape.batch_s),
        touched=sum(s.touched for s in slices) / seconds,
        pairs=sum(b.pairs for b in batches) / seconds,
        results=sum(sum(b.results.values()) for b in batches) / seconds,
        input_rows=sum(sum(b.input_rows.values()) for b in batches),
        seconds=seconds,
        batches=len(batches),
        segments=sum(s.segments for s in slices) / len(batches),
        wall_s=len(batches) * median(b.wall_s for b in batches),
        cpu_s=len(batches) * median(b.cpu_s for b in batches),
    )
