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
from typing import Any

from catalog.values.plan import Plan
from planner.families.families import SIDES, side_chain
from tests.bench.paper.arrivals import STREAMS, arrivals
from tests.bench.paper.counted import counted_terms, expected_cost, operator_males_per_s
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


#: A row of the CSV files: what one plan did in one setting. Per second means second of event time.
Measurement = dict[str, Any]


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
    expected = expected_cost(setting, plan, shape.batch_s)
    slices = [s for batch in batches for s in batch.slices]
    return {
        **setting.facts(),
        "strategy": name,
        "joins": len(family.joins),
        # Slices of side a, all joins together.
        "slices": sum(len(side_chain(join, SIDES[0])) for join in family.joins),
        # Held at the end of a batch, mean; by the paper's model.
        "state_rows": fmean([b.state_rows for b in batches]),
        "state_bytes": fmean([b.state_bytes for b in batches]),
        "expected_state_rows": expected.memory_rows,
        # Counted comparisons per second, by term and all together; by the paper's model.
        **{term: getattr(terms, term) for term in ("probe", "purge", "route", "union", "filter")},
        "comparisons": terms.total,
        "expected_comparisons": expected.comparisons,
        # Males times slices of their join, per second: what C_sys multiplies.
        "operator_males": operator_males_per_s(batches, shape.batch_s),
        # Pairs of equal key looked at, pairs written, results of all queries, per second.
        "touched": sum(s.touched for s in slices) / seconds,
        "pairs": sum(b.pairs for b in batches) / seconds,
        "results": sum(sum(b.results.values()) for b in batches) / seconds,
        "input_rows": sum(sum(b.input_rows.values()) for b in batches),
        "seconds": seconds,
        "batches": len(batches),
        "segments": sum(s.segments for s in slices) / len(batches),
        # Each batch taken as the median one: steady batches are alike, and what else the machine does for a
        # moment is none of theirs.
        "wall_s": len(batches) * median(b.wall_s for b in batches),
        "cpu_s": len(batches) * median(b.cpu_s for b in batches),
    }
