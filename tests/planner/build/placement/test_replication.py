from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from catalog.values.plan import ALL_BUCKETS, FamilyPlan, Plan, Replication
from catalog.values.statistics import FamilyProfile, FrequentKey, Measure, Profile, StreamProfile
from catalog.values.stream import Constraints
from operators.kernels.keys import bucket_of, mix
from planner.build.build_plan import build_plan
from planner.build.check_plan import check_plan
from planner.build.objective import Objective
from planner.build.placement.place_query import spread_query
from planner.build.placement.replication import (
    EVEN,
    HASHED,
    KeyWork,
    chosen_replication,
    predicted_imbalance,
)
from planner.costs.rates import family_rates
from planner.errors import InvalidPlan
from tests.builders import a_query_s
from tests.planner.values import STREAMS

QUERIES = [a_query_s(n, round(n * 2.5e6)) for n in range(1, 13)]
FAMILY = build_plan(QUERIES, STREAMS).families[0]


def profile_of(shares: Sequence[float], buckets: int, rate_per_s: float) -> Profile:
    """Return what is known of two streams whose keys 0, 1, ... have these shares of the rows."""
    keys = np.arange(len(shares), dtype=np.int64)
    hashes = mix(keys.view(np.uint64)).tolist()
    top = sorted(range(len(shares)), key=lambda k: -shares[k])[:256]
    frequent = tuple(FrequentKey(k, hashes[k], shares[k], shares[k]) for k in sorted(top))
    pairs = Measure(sum(share**2 for share in shares))
    return Profile(
        streams=tuple(StreamProfile(i, Measure(rate_per_s)) for i in (1, 2)),
        families=(FamilyProfile(FAMILY.id, pairs, frequent=frequent),),
        buckets=buckets,
    )


def zipf(keys: int, exponent: float) -> list[float]:
    weights = np.arange(1, keys + 1) ** -exponent
    shares: list[float] = (weights / weights.sum()).tolist()
    return shares


#: Shares of the rows by key, and rows per second: few-keys, skew and many-keys of the peers' benchmark.
INPUTS: Mapping[str, tuple[list[float], float]] = {
    "few": ([0.01] * 100, 20.0),
    "skew": (zipf(100_000, 1.2), 10.0),
    "two": ([0.5] * 2, 5.0),
    "many": ([1e-4] * 10_000, 1000.0),
}


def chosen(name: str, buckets: int) -> tuple[Replication, float, float]:
    """Return what is chosen, and the hottest bucket's work over the mean under it and under hashing."""
    shares, rate = INPUTS[name]
    rates = family_rates(FAMILY, 1, 2, profile_of(shares, buckets, rate))
    replication = chosen_replication(FAMILY, rates)
    found, hashed = (predicted_imbalance(FAMILY, rates, r) for r in (replication, HASHED))
    return replication, found, hashed


@pytest.mark.parametrize("buckets", [1, 2, 3, 8, 32])
@pytest.mark.parametrize("name", ["few", "skew", "two"])
def test_no_bucket_is_to_do_twice_the_mean(name: str, buckets: int) -> None:
    _, found, hashed = chosen(name, buckets)
    assert found < 2
    assert found <= hashed


@pytest.mark.parametrize("buckets", [1, 2, 8, 32])
def test_many_keys_are_hashed(buckets: int) -> None:
    assert chosen("many", buckets)[0] == HASHED


def test_what_a_hash_spreads_evenly_is_not_replicated() -> None:
    replication, _, hashed = chosen("few", 2)
    assert hashed < EVEN
    assert replication == HASHED


def test_a_key_has_as_many_buckets_as_its_work_asks_for() -> None:
    replication, _, hashed = chosen("skew", 32)
    fragments = [count for _, count in replication.heavy]
    assert [key for key, _ in replication.heavy] == list(range(len(fragments)))
    assert fragments[0] == 32
    assert fragments == sorted(fragments, reverse=True)
    assert fragments[-1] == 2
    assert hashed > 10


def test_nothing_is_replicated_where_nothing_is_known_of_the_keys() -> None:
    assert chosen_replication(FAMILY, family_rates(FAMILY, 1, 2, Profile(buckets=8))) == HASHED


def test_keys_that_make_no_pairs_are_not_worth_their_copies() -> None:
    """All rows of a have one key, all of b another: copies of them would help nobody."""
    hashes = mix(np.array([1, 2], dtype=np.int64).view(np.uint64)).tolist()
    keys = (FrequentKey(1, hashes[0], 1.0, 0.0), FrequentKey(2, hashes[1], 0.0, 1.0))
    family = FamilyProfile(FAMILY.id, Measure(0.0), frequent=keys)
    rates = family_rates(FAMILY, 1, 2, Profile(families=(family,), buckets=8))
    work = KeyWork.of(FAMILY, rates)
    replication = chosen_replication(FAMILY, rates)
    fragments = np.array([dict(replication.heavy).get(k, 1) for k in (1, 2)], dtype=np.int64)
    assert work.loads(fragments).max() <= work.loads(np.array([1, 1])).max()


@pytest.mark.parametrize("buckets", [8, 32])
def test_work_is_laid_where_the_job_lays_it(buckets: int) -> None:
    shares = [0.5, 0.3, 0.2]
    rates = family_rates(FAMILY, 1, 2, profile_of(shares, buckets, 10.0))
    loads = KeyWork.of(FAMILY, rates).loads(np.array([1, 1, 1]))
    homes = set(bucket_of(np.arange(3, dtype=np.int64), buckets).tolist())
    assert set(np.flatnonzero(loads > loads.min()).tolist()) == homes


def fragments_of(plan: Plan) -> list[Replication]:
    return [family.replication for family in plan.families]


def test_the_planner_chooses_when_a_family_comes_and_the_user_may_overrule() -> None:
    profile = profile_of(INPUTS["skew"][0], 8, 10.0)
    auto = build_plan(QUERIES, STREAMS, profile=profile)
    assert fragments_of(auto)[0].heavy
    assert fragments_of(
        build_plan(QUERIES, STREAMS, profile=profile, objective=Objective(partitioning="hash"))
    ) == [HASHED]
    everything = build_plan(QUERIES, STREAMS, profile=profile, objective=Objective(partitioning="replicate"))
    assert fragments_of(everything) == [Replication(ALL_BUCKETS)]


def test_fragments_only_grow_while_a_family_lives() -> None:
    profile = profile_of(INPUTS["skew"][0], 8, 10.0)
    plan = build_plan(QUERIES, STREAMS, profile=profile)
    kept = build_plan(QUERIES[:3], STREAMS, plan, objective=Objective(partitioning="hash"))
    assert fragments_of(kept) == fragments_of(plan)
    (grown,) = fragments_of(build_plan(QUERIES, STREAMS, kept, objective=Objective(partitioning="replicate")))
    assert grown == Replication(ALL_BUCKETS)


def test_keys_of_a_stream_with_a_contract_spread_no_further() -> None:
    everywhere = Objective(partitioning="replicate")
    promising = {i: replace(s, constraints=Constraints(("k",))) for i, s in STREAMS.items()}
    assert fragments_of(build_plan(QUERIES, promising, objective=everywhere)) == [HASHED]
    spread = build_plan(QUERIES, STREAMS, objective=everywhere)
    assert fragments_of(build_plan(QUERIES, promising, spread)) == fragments_of(spread)


def test_only_rows_of_one_side_that_are_judged_are_spread() -> None:
    by_name = {stream.name: stream for stream in STREAMS.values()}
    left = a_query_s(1, 10, kind="outer", preserved=("a",))
    full = a_query_s(2, 10, kind="outer", preserved=("a", "b"))
    assert spread_query(left, "auto", by_name) == left
    spread = spread_query(left, "replicate", by_name)
    assert spread.spreads
    for other in (full, a_query_s(3, 10)):
        assert spread_query(other, "replicate", by_name) == other, "it is not told which side to spread"
    promising = {name: replace(s, constraints=Constraints(("k",))) for name, s in by_name.items()}
    assert spread_query(left, "replicate", promising) == left
    # They go on so, whatever is asked for later.
    plan = build_plan([spread, full], STREAMS, objective=Objective(partitioning="replicate"))
    later = build_plan([spread, full], STREAMS, plan, objective=Objective(partitioning="hash"))
    for each in (plan, later):
        found = {f.id.partition("-absence")[2]: f.replication for f in each.families}
        assert found == {"-a": Replication(ALL_BUCKETS), "": HASHED}


def test_a_family_that_runs_is_left_alone_until_it_is_planned_anew() -> None:
    plan = build_plan(QUERIES, STREAMS)
    profile = profile_of(INPUTS["skew"][0], 8, 10.0)
    assert fragments_of(build_plan(QUERIES, STREAMS, plan, profile=profile, keep=[FAMILY.id])) == [HASHED]
    assert fragments_of(build_plan(QUERIES, STREAMS, plan, profile=profile)) != [HASHED]


def test_a_family_that_comes_back_goes_on_with_its_fragments() -> None:
    plan = build_plan(QUERIES, STREAMS, objective=Objective(partitioning="replicate"))
    gone = build_plan([], STREAMS, plan)
    assert gone.departed == ((FAMILY.id, Replication(ALL_BUCKETS)),)
    back = build_plan(QUERIES, STREAMS, gone, objective=Objective(partitioning="hash"))
    assert (fragments_of(back), back.departed) == ([Replication(ALL_BUCKETS)], ())


def test_a_family_whose_stream_is_removed_is_forgotten() -> None:
    gone = build_plan(
        [], STREAMS, build_plan(QUERIES, STREAMS, objective=Objective(partitioning="replicate"))
    )
    without = replace(gone, streams=tuple(s for s in gone.streams if s.id != 2))
    assert build_plan([], STREAMS, without).departed == ()


def test_a_plan_that_takes_fragments_from_a_key_is_refused() -> None:
    plan = build_plan(QUERIES, STREAMS, objective=Objective(partitioning="replicate"))
    after = build_plan(QUERIES, STREAMS, plan)

    def shrunk(family: FamilyPlan) -> FamilyPlan:
        return replace(family, replication=Replication(2))

    lost = replace(after, families=tuple(map(shrunk, after.families)))
    with pytest.raises(InvalidPlan, match="a key lost fragments"):
        check_plan(lost, plan)
    with pytest.raises(InvalidPlan, match="a key lost fragments"):
        check_plan(replace(build_plan([], STREAMS, plan), departed=()), plan)


@pytest.mark.parametrize(
    ("every", "heavy", "message"),
    [
        (0, (), "1 to"),
        (1, ((3, 1),), "more fragments than other keys"),
        (2, ((3, 3), (1, 3)), "not ascending"),
        (1, ((3, 3), (3, 4)), "not ascending"),
    ],
)
def test_a_replication_that_makes_no_sense_is_refused(
    every: int, heavy: tuple[tuple[int, int], ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Replication(every, heavy)
