from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.steps import intermediate_id
from catalog.values.query import UNBOUNDED_US
from catalog.values.statistics import FamilyProfile, FilterProfile, Measure, Profile, StreamProfile
from planner.costs.rates import HORIZON_S, SideRates, family_rates, with_handed
from tests.builders import SECOND_US, a_query_s
from tests.planner.values import family_of

LOW, HIGH = '"v" < 0.2', '"v" > 0.9'
FAMILY = family_of([a_query_s(1, 10), a_query_s(2, 30, filter_a=LOW), a_query_s(3, 20, filter_a=HIGH)])


def test_what_a_profile_does_not_say_is_assumed() -> None:
    rates = family_rates(FAMILY, 1, 2, Profile())
    for measure, value in (
        (rates.a.rate, 1000.0),
        (rates.b.row_bytes, 64.0),
        (rates.a.selectivity[0], 0.5),
        (rates.join_selectivity, 1e-3),
        (rates.batch_s, 1.0),
    ):
        assert measure == Measure(value, "assumed")


def test_a_profile_is_looked_up_by_stream_filter_and_family() -> None:
    rate, width = Measure(50.0, "measured", 7), Measure(48.0)
    profile = Profile(
        streams=(StreamProfile(1, rate, width), StreamProfile(2, Measure(2.0))),
        filters=(
            FilterProfile(1, HIGH, Measure(0.1, "sampled")),
            FilterProfile(2, LOW, Measure(0.9)),  # of the other stream
        ),
        families=(FamilyProfile(FAMILY.id, Measure(0.025)), FamilyProfile("s8s9-0", Measure(1.0))),
        batch_s=Measure(0.25),
        buckets=8,
    )
    rates = family_rates(FAMILY, 1, 2, profile)
    assert (rates.a.rate, rates.a.row_bytes) == (rate, width)
    assert (rates.b.rate, rates.b.row_bytes) == (Measure(2.0), Measure(64.0, "assumed"))
    assert rates.a.selectivity == {0: Measure(0.5, "assumed"), 1: Measure(0.1, "sampled")}
    assert rates.join_selectivity == Measure(0.025)
    assert (rates.batch_s, rates.buckets) == (Measure(0.25), 8)


def test_independent_filters_pass_what_not_all_of_them_refuse() -> None:
    side = SideRates(Measure(1), Measure(1), {0: Measure(0.5), 1: Measure(0.2), 2: Measure(0.2)})
    assert side.passing_any([0, 1, 2]) == pytest.approx(1 - 0.5 * 0.8 * 0.8)
    assert side.passing_any([]) == 0
    assert side.passing_any([1, None]) == 1


def test_a_filter_that_implies_another_lets_no_row_more_by() -> None:
    selectivity = {0: Measure(0.5), 1: Measure(0.2)}
    side = SideRates(Measure(1), Measure(1), selectivity, weaker={1: frozenset({0})})
    assert side.passing_any([0, 1]) == 0.5
    assert side.passing_any([1]) == pytest.approx(0.2)


def test_filters_are_independent_among_the_rows_that_pass_what_they_imply() -> None:
    selectivity = {0: Measure(0.5), 1: Measure(0.2), 2: Measure(0.2), 3: Measure(0.1), 4: Measure(0.4)}
    weaker = {1: frozenset({0}), 2: frozenset({0}), 3: frozenset({0, 1})}
    side = SideRates(Measure(1), Measure(1), selectivity, weaker)
    assert side.passing_any([1, 2]) == pytest.approx(0.5 * (1 - 0.6 * 0.6))
    assert side.passing_any([3, 2]) == pytest.approx(0.5 * (1 - 0.8 * 0.6))
    assert side.passing_any([3, 2, 4]) == pytest.approx(1 - (1 - 0.5 * (1 - 0.8 * 0.6)) * 0.6)
    assert side.passing_any([1, 2, 3, 0]) == 0.5


def test_statistics_that_contradict_an_implication_let_no_more_rows_by_than_the_weaker_filter() -> None:
    side = SideRates(Measure(1), Measure(1), {0: Measure(0.1), 1: Measure(0.9)}, {1: frozenset({0})})
    assert side.passing_any([1]) == side.passing_any([0, 1]) == 0.1


def test_filters_that_imply_each_other_are_one() -> None:
    weaker = {0: frozenset({1}), 1: frozenset({0})}
    side = SideRates(Measure(1), Measure(1), {0: Measure(0.5), 1: Measure(0.5)}, weaker)
    assert side.passing_any([0]) == side.passing_any([1]) == side.passing_any([0, 1]) == 0.5


def test_a_small_fraction_keeps_its_digits() -> None:
    side = SideRates(Measure(1), Measure(1), {0: Measure(1e-17)})
    assert side.passing_any([0]) == 1e-17


def test_unbounded_windows_are_costed_for_a_day_or_the_largest_bounded_window() -> None:
    rates = family_rates(FAMILY, 1, 2, Profile())
    assert rates.seconds(UNBOUNDED_US, "a") == HORIZON_S
    assert rates.seconds(90 * SECOND_US, "a") == 90
    long = family_of([a_query_s(1, 10 * HORIZON_S), replace(a_query_s(2), name="q2")])
    assert family_rates(long, 1, 2, Profile()).seconds(UNBOUNDED_US, "a") == 10 * HORIZON_S
    assert family_rates(FAMILY, 1, 2, Profile(), horizon_s=100).seconds(UNBOUNDED_US, "a") == 100


def test_a_window_of_rows_costs_as_the_time_in_which_they_come() -> None:
    profile = Profile(
        streams=(StreamProfile(1, Measure(200.0)), StreamProfile(2, Measure(10.0))),
        families=tuple(
            FamilyProfile(family, Measure(0.05))
            for family in ("s1s2-52383a8d-rows-a", "s1s2-52383a8d-keyrows-a", "s1s2-52383a8d")
        ),
    )
    rows, of_keys, times = (
        family_rates(replace(FAMILY, id=known.family), 1, 2, profile) for known in profile.families
    )
    assert rows.seconds(400, "a") == pytest.approx(2)
    assert of_keys.seconds(400, "a") == pytest.approx(40)  # a twentieth of the rows have the key
    assert of_keys.seconds(30_000_000, "b") == times.seconds(30_000_000, "b") == 30


def test_pairs_that_go_on_are_as_many_as_their_family_makes() -> None:
    queries = [
        replace(a_query_s(1, 10, filter_a=LOW), hands_on=True),
        replace(a_query_s(2, 30), hands_on=True),
        a_query_s(3, 90),
    ]
    family = family_of(queries)
    made = intermediate_id(1, 2, (("k", "k"),))
    profile = with_handed(Profile(), family, made, family_rates(family, 1, 2, Profile()))
    # 0.001 equal keys, 1,000 rows/s each, windows of 30 s on both sides; query 1 has half of a's rows, 10 s.
    (stream,) = profile.streams
    assert (stream.stream_id, stream.rate_per_s.origin) == (made, "assumed")
    assert stream.rate_per_s.value == pytest.approx(1e-3 * 1000 * 1000 * 60)
    shares = {f.sql: f.selectivity.value for f in profile.filters}
    assert shares == {'"query 1"': pytest.approx(1 / 6), '"query 2"': 1.0}
    assert with_handed(profile, family, made, family_rates(family, 1, 2, Profile())) == profile
