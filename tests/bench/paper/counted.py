"""The paper's terms, counted: what the engine's counters say, priced by the paper's model.

    counters of slices ──┐
                         ├── SliceLoad, as measured ── PaperModel ── probe, purge, route, union, filter
    shape of the plan ───┘

How many rows and pairs there were is counted; how often the paper compares each of them follows from the plan
(windows inside a slice, selections that a pair has to be judged by, unions that a slice feeds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from catalog.values.counters.family_counters import SliceCounters
from catalog.values.plan import FamilyPlan, Plan
from planner.costs.cost import JoinInput, SliceLoad, Terms
from planner.costs.loads.loads import join_input, slice_loads
from planner.costs.paper_model import PaperModel
from planner.costs.rates import FamilyRates, family_rates
from planner.families.families import SIDES, side_chain
from tests.bench.paper.setting import Setting, profile_of
from tests.pipeline import Ran

_PAPER = PaperModel()
#: Counters that add up.
_ADDED = ("touched", "males", "inserted", "moved_in", "filtered", "results", "product")
#: Join, side, number of the slice.
_Place = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the paper's model says of a plan.

    Attributes:
        memory_rows: Rows held.
        comparisons: Comparisons per second.
    """

    memory_rows: float
    comparisons: float


def expected_cost(setting: Setting, plan: Plan, batch_s: float) -> Expected:
    """Return the paper's cost of a plan from the true statistics of the input."""
    (family,) = plan.families
    rates = _rates(setting, family, batch_s)
    loads = [load for join in family.joins for load in slice_loads(family, join, rates)]
    terms = sum((_PAPER.slice_terms(load) for load in loads), Terms())
    terms += _PAPER.input_terms(join_input(family, family.joins, rates))
    return Expected(sum(load.held_rows for load in loads), terms.total)


def counted_terms(setting: Setting, plan: Plan, batches: Sequence[Ran], batch_s: float) -> Terms:
    """Return the paper's terms as counted in some batches, per second of event time."""
    (family,) = plan.families
    rates = _rates(setting, family, batch_s)
    seconds = len(batches) * batch_s
    counted = _by_place(batches)
    terms = Terms()
    for join in family.joins:
        places = [(join.id, side, n) for side in SIDES for n in range(1, len(side_chain(join, side)) + 1)]
        for place, load in zip(places, slice_loads(family, join, rates), strict=True):
            chain_males = counted[join.id, place[1], 1].males
            terms += _PAPER.slice_terms(_as_counted(load, counted[place], chain_males, seconds))
    several = {i for i, joins in Counter(i for j in family.joins for i in j.queries).items() if joins > 1}
    load = join_input(family, family.joins, rates)
    return terms + _PAPER.input_terms(_input_as_counted(load, family, rates, several, batches, seconds))


def operator_males_per_s(batches: Sequence[Ran], batch_s: float) -> float:
    """Return males times slices of their join, per second: what the system overhead C_sys multiplies."""
    counted = _by_place(batches)
    males = sum(counted[join, side, 1].males for join, side, _ in counted)
    return males / (len(batches) * batch_s)


def _rates(setting: Setting, family: FamilyPlan, batch_s: float) -> FamilyRates:
    profile = profile_of(setting, batch_s)
    return family_rates(family, family.stream_a, family.stream_b, profile)


def _by_place(batches: Sequence[Ran]) -> dict[_Place, SliceCounters]:
    """Sum the counters of each slice over batches."""
    total: dict[_Place, SliceCounters] = {}
    for batch in batches:
        for new in batch.slices:
            place = (new.join, new.side, new.slice)
            old = total.get(place)
            total[place] = new if old is None else _sum(old, new)
    return total


def _sum(x: SliceCounters, y: SliceCounters) -> SliceCounters:
    return replace(x, **{name: getattr(x, name) + getattr(y, name) for name in _ADDED})


def _as_counted(load: SliceLoad, counters: SliceCounters, chain_males: int, seconds: float) -> SliceLoad:
    """Put what was counted in the place of what was expected."""
    entering = counters.inserted + counters.moved_in
    judged_per_match = load.judged_results_per_s / load.matches_per_s if load.matches_per_s else 0.0
    return replace(
        load,
        judged_per_s=(entering + counters.filtered) / seconds if load.judged_per_s else 0.0,
        entering_per_s=entering / seconds,
        chain_males_per_s=chain_males / seconds,
        males_per_s=counters.males / seconds,
        candidates_per_s=counters.product / seconds,
        matches_per_s=counters.touched / seconds,
        results_per_s=counters.results / seconds,
        judged_results_per_s=judged_per_match * counters.touched / seconds,
    )


def _input_as_counted(
    load: JoinInput,
    family: FamilyPlan,
    rates: FamilyRates,
    several: set[int],
    batches: Sequence[Ran],
    seconds: float,
) -> JoinInput:
    """Put counted rows and results in the place of expected ones; one side alone has selections here."""
    rows = sum(batch.input_rows[family.stream_a] for batch in batches) / seconds
    share = rows / rates.a.rate.value
    merged = sum(n for batch in batches for query, n in batch.results.items() if query in several)
    return replace(
        load,
        split_per_s=load.split_per_s * share,
        private_filters_per_s=load.private_filters_per_s * share,
        merged_per_s=merged / seconds,
    )
