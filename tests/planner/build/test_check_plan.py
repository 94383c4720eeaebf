"""Each way of breaking a good plan is refused with its own message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from catalog.values.plan import FamilyPlan, Partition, Plan, Slice
from planner.build.build_plan import build_plan
from planner.build.check_plan import check_plan
from planner.build.objective import Objective
from planner.errors import InvalidPlan
from tests.builders import SECOND_US, a_query_s
from tests.planner.values import STREAMS

LOW, HIGH = '"v" < 0.2', '"v" > 0.9'
FIRST = build_plan([a_query_s(1, 10, filter_a=HIGH), a_query_s(2, 30, filter_a=LOW)], STREAMS)
NEXT = build_plan(
    [a_query_s(1, 10, filter_a=HIGH), a_query_s(2, 30, filter_a=LOW), a_query_s(3, 20)], STREAMS, FIRST
)


def _family(plan: Plan, **changes: object) -> Plan:
    return replace(plan, families=(replace(plan.families[0], **changes),))  # type: ignore[arg-type]  # any field


def _slice(plan: Plan, index: int, **changes: object) -> Plan:
    chain = list(_chain(plan))
    chain[index] = replace(chain[index], **changes)  # type: ignore[arg-type]  # any field
    return _join(plan, chain_a=tuple(chain))


def _chain(plan: Plan) -> tuple[Slice, ...]:
    return plan.families[0].joins[0].chain_a


def _join(plan: Plan, index: int = 0, **changes: object) -> Plan:
    joins = list(plan.families[0].joins)
    joins[index] = replace(joins[index], **changes)  # type: ignore[arg-type]  # any field
    return _family(plan, joins=tuple(joins))


def _query(plan: Plan, index: int, **changes: object) -> Plan:
    queries = list(plan.families[0].queries)
    queries[index] = replace(queries[index], **changes)  # type: ignore[arg-type]  # any field
    return _family(plan, queries=tuple(queries))


def _of(plan: Plan) -> FamilyPlan:
    return plan.families[0]


BROKEN: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "version": (lambda p: replace(p, version=4), "plan version is 4, not 2"),
    "family id": (
        lambda p: _family(p, id="s1s2-0"),
        "id does not follow from streams, key, kind and clocks of queries",
    ),
    "two families": (lambda p: replace(p, families=(_of(p), _of(p))), "families: .* stands before"),
    "no queries": (lambda p: _family(p, queries=()), "no query"),
    "query order": (lambda p: _family(p, queries=_of(p).queries[::-1]), "queries: 3 stands before 2"),
    "key types": (lambda p: _family(p, key_types=()), "differ in number"),
    "stream missing": (lambda p: replace(p, streams=p.streams[:1]), "stream 2 is not in the plan"),
    "column unknown": (
        lambda p: replace(p, streams=(replace(STREAMS[1], columns=()), STREAMS[2])),
        r'stream "A" has no column \[\'k\', \'v\'\]',
    ),
    "columns": (
        lambda p: _family(p, columns_a=()),
        "columns of a differ from those that its queries read",
    ),
    "columns of pairs": (lambda p: _family(p, result_columns_a=("m",)), r"\['m'\] of a that are not stored"),
    "bit twice": (
        lambda p: _family(p, filters_a=_of(p).filters_a[:1] * 2),
        "filters of a: 0 stands before 0",
    ),
    "bit unused": (lambda p: _query(p, 0, filter_a=None), "bits differ from the bits that its queries use"),
    "bit not counted": (lambda p: replace(p, next_bit=()), "a bit is not below next_bit 0"),
    "start": (lambda p: _slice(p, 0, w_start_us=1), "does not start at 0"),
    "end": (lambda p: _slice(p, -1, w_end_us=40 * SECOND_US), "does not end at the largest window"),
    "gap": (lambda p: _slice(p, 1, w_start_us=11 * SECOND_US), "not contiguous at 10000000 us"),
    "merged": (
        lambda p: _join(p, chain_a=(replace(_chain(p)[0], w_end_us=30 * SECOND_US),)),
        "Mem-Opt must have a slice for each distinct window",
    ),
    "keep": (lambda p: _slice(p, 2, keep=None), r"slice 3: keeps None, but its queries can use \(0,\)"),
    "stream gone": (
        lambda p: replace(p, families=(), streams=p.streams[1:]),
        r"streams \[1\] were used before",
    ),
    "next_bit back": (lambda p: replace(p, families=(), next_bit=()), "next_bit of .* has decreased"),
    "activation": (lambda p: _query(p, 0, since_version=2), 'query "q1": active since 1'),
    "activation early": (lambda p: _query(p, 2, since_version=1), 'query "q3": active since 2'),
    "window moved": (lambda p: _query(p, 0, w_a_us=20 * SECOND_US), "chain of a"),
}


QUERIES = [a_query_s(1, 10), a_query_s(2, 20, filter_a=LOW), a_query_s(3, 30, filter_a=HIGH)]
SPLIT = build_plan(QUERIES, STREAMS, objective=Objective("pushdown"))
APART = build_plan(QUERIES, STREAMS, objective=Objective("unshared"))
PULLED_UP = build_plan(QUERIES, STREAMS, objective=Objective("pullup"))
MERGED = build_plan(QUERIES, STREAMS, objective=Objective("cpu-opt", cost_model="paper", c_sys=1e9))


def _part(plan: Plan, index: int, **changes: object) -> Plan:
    part = plan.families[0].joins[index].partition
    assert part is not None
    return _join(plan, index, partition=replace(part, **changes))  # type: ignore[arg-type]  # any field


BROKEN_JOINS: dict[str, tuple[Plan, Callable[[Plan], Plan], str]] = {
    "no join": (FIRST, lambda p: _family(p, joins=()), "no join"),
    "join order": (APART, lambda p: _family(p, joins=_of(p).joins[::-1]), "join 'q3' stands before 'q2'"),
    "join of nobody": (APART, lambda p: _join(p, 0, queries=()), 'join "q1": no query'),
    "unknown query": (APART, lambda p: _join(p, 0, queries=(7,)), r"serves unknown queries \[7\]"),
    "queries not ascending": (FIRST, lambda p: _join(p, queries=(2, 1)), "queries not ascending"),
    "query left out": (FIRST, lambda p: _join(p, queries=(1,)), "its one join does not serve all queries"),
    "query served twice": (APART, lambda p: _join(p, 0, queries=(2,)), "do not serve each query once"),
    "query unserved": (APART, lambda p: _family(p, joins=_of(p).joins[:2]), "do not serve each query once"),
    "pulled up by part": (
        SPLIT,
        lambda p: _join(p, 0, pulled_up=True),
        "a pulled-up join must take all rows",
    ),
    "pulled up and filtered": (APART, lambda p: _join(p, 1, pulled_up=True), "slice 1: keeps"),
    "not pulled up": (
        PULLED_UP,
        lambda p: _slice(p, 0, keep=(0,)),
        r"slice 1: keeps \(0,\), but its queries can use None",
    ),
    "cut where one slice belongs": (
        PULLED_UP,
        lambda p: _join(p, chain_a=FIRST.families[0].joins[0].chain_a),
        "pullup must have one slice",
    ),
    "some split": (SPLIT, lambda p: _join(p, 0, partition=None), "some joins take a part of the rows"),
    "both split": (SPLIT, lambda p: _part(p, 0, side="b"), "both sides are split"),
    "no class": (SPLIT, lambda p: _part(p, 2, one_of=()), 'join "p3": its class serves no query'),
    "one_of order": (SPLIT, lambda p: _part(p, 2, one_of=(3, 2)), "one_of is not ascending"),
    "rows of two classes": (
        SPLIT,
        lambda p: _part(p, 1, none_of=(2,)),
        "none_of differs from the higher classes' queries",
    ),
    "query of two classes": (SPLIT, lambda p: _part(p, 1, one_of=(2, 3)), "a query has two classes"),
    "rows of no class": (
        SPLIT,
        lambda p: _family(p, joins=_of(p).joins[1:]),
        r"queries \[1\] have no class",
    ),
    "class above served": (
        SPLIT,
        lambda p: _join(p, 0, queries=(1, 2)),
        "does not serve its class and all lower ones",
    ),
    "class below unserved": (SPLIT, lambda p: _join(p, 2, queries=(2, 3)), "does not serve its class"),
    "class kept by others": (
        SPLIT,
        lambda p: _join(p, 2, chain_a=(replace(_of(p).joins[2].chain_a[0], keep=None),)),
        r"keeps None, but its queries can use \(1,\)",
    ),
    "split unfiltered side": (
        SPLIT,
        lambda p: _family(
            p,
            joins=tuple(
                replace(j, partition=replace(j.partition, side="b")) for j in _of(p).joins if j.partition
            ),
        ),
        "side b is split, but has no filter",
    ),
    "merged slice with another end": (
        MERGED,
        lambda p: _join(
            p,
            chain_a=(
                Slice(0, 11 * SECOND_US, None),
                Slice(11 * SECOND_US, 30 * SECOND_US, (0, 1)),
            ),
        ),
        "a boundary is not the window of a query",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plan_is_refused(name: str) -> None:
    breaks, message = BROKEN[name]
    check_plan(NEXT, FIRST)
    with pytest.raises(InvalidPlan, match=message):
        check_plan(breaks(NEXT), FIRST)


@pytest.mark.parametrize("name", BROKEN_JOINS)
def test_joins_that_would_lose_or_double_pairs_are_refused(name: str) -> None:
    plan, breaks, message = BROKEN_JOINS[name]
    check_plan(plan, None)
    with pytest.raises(InvalidPlan, match=message):
        check_plan(breaks(plan), None)


def test_the_examples_have_the_joins_that_they_are_named_for() -> None:
    assert [j.partition for j in _of(SPLIT).joins] == [
        Partition("a", (1,), (2, 3)),
        Partition("a", (2,), (3,)),
        Partition("a", (3,), ()),
    ]
    assert [j.id for j in _of(APART).joins] == ["q1", "q2", "q3"]
    assert _of(PULLED_UP).joins[0].pulled_up
    assert [s.w_end_us for s in _chain(MERGED)] == [30 * SECOND_US]


def test_an_id_keeps_its_window() -> None:
    with pytest.raises(InvalidPlan, match='query "q1": key, window or filter changed under the same id 1'):
        build_plan([a_query_s(1, 11, filter_a=HIGH)], STREAMS, FIRST)


def test_an_id_keeps_its_filter() -> None:
    with pytest.raises(InvalidPlan, match="changed under the same id 1"):
        build_plan([a_query_s(1, 10, filter_a=LOW)], STREAMS, FIRST)


def test_a_bit_given_before_is_not_given_again() -> None:
    family, q1 = _of(FIRST), _of(FIRST).queries[0]
    swapped = tuple(replace(f, sql=sql) for f, sql in zip(family.filters_a, (HIGH, LOW), strict=True))
    queries = (replace(q1, filter_a=0), replace(family.queries[1], filter_a=1))
    (join,) = family.joins
    joins = (replace(join, chain_a=(join.chain_a[0], replace(join.chain_a[1], keep=(1,)))),)
    plan = replace(
        FIRST, version=2, families=(replace(family, filters_a=swapped, queries=queries, joins=joins),)
    )
    with pytest.raises(InvalidPlan, match="changed its bit"):
        check_plan(plan, FIRST)
    renamed = tuple(replace(f, sql=f'"v" = {f.bit + 7}') for f in family.filters_a)
    with pytest.raises(InvalidPlan, match="bit 0 was assigned before"):
        check_plan(replace(FIRST, version=2, families=(replace(family, filters_a=renamed),)), FIRST)
