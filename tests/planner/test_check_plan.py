"""Each way of breaking a good plan is refused with its own message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from catalog.values.plan import FamilyPlan, Plan
from planner.build_plan import build_plan
from planner.check_plan import check_plan
from planner.errors import InvalidPlan
from tests.planner.values import SECOND_US, STREAMS, a_query

LOW, HIGH = '"v" < 0.2', '"v" > 0.9'
FIRST = build_plan([a_query(1, 10, filter_a=HIGH), a_query(2, 30, filter_a=LOW)], STREAMS)
NEXT = build_plan(
    [a_query(1, 10, filter_a=HIGH), a_query(2, 30, filter_a=LOW), a_query(3, 20)], STREAMS, FIRST
)


def _family(plan: Plan, **changes: object) -> Plan:
    return replace(plan, families=(replace(plan.families[0], **changes),))  # type: ignore[arg-type]  # any field


def _slice(plan: Plan, index: int, **changes: object) -> Plan:
    chain = list(plan.families[0].chain_a)
    chain[index] = replace(chain[index], **changes)  # type: ignore[arg-type]  # any field
    return _family(plan, chain_a=tuple(chain))


def _query(plan: Plan, index: int, **changes: object) -> Plan:
    queries = list(plan.families[0].queries)
    queries[index] = replace(queries[index], **changes)  # type: ignore[arg-type]  # any field
    return _family(plan, queries=tuple(queries))


def _of(plan: Plan) -> FamilyPlan:
    return plan.families[0]


BROKEN: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "version": (lambda p: replace(p, version=4), "plan version is 4, not 2"),
    "family id": (lambda p: _family(p, id="s1s2-0"), "id does not follow from streams and key"),
    "two families": (lambda p: replace(p, families=(_of(p), _of(p))), "families: .* stands before"),
    "no queries": (lambda p: _family(p, queries=()), "no query"),
    "query order": (lambda p: _family(p, queries=_of(p).queries[::-1]), "queries: 3 stands before 2"),
    "key types": (lambda p: _family(p, key_types=()), "differ in number"),
    "stream missing": (lambda p: replace(p, streams=p.streams[:1]), "stream 2 is not in the plan"),
    "column unknown": (
        lambda p: replace(p, streams=(replace(STREAMS[1], columns=()), STREAMS[2])),
        r'stream "A" has no column \[\'k\', \'v\'\]',
    ),
    "columns": (lambda p: _family(p, columns_a=()), "columns of a are not what its queries need"),
    "bit twice": (
        lambda p: _family(p, filters_a=_of(p).filters_a[:1] * 2),
        "filters of a: 0 stands before 0",
    ),
    "bit unused": (lambda p: _query(p, 0, filter_a=None), "not the bits that its queries use"),
    "bit not counted": (lambda p: replace(p, next_bit=()), "a bit is not below next_bit 0"),
    "start": (lambda p: _slice(p, 0, w_start_us=1), "does not start at 0"),
    "end": (lambda p: _slice(p, -1, w_end_us=40 * SECOND_US), "does not end at the largest window"),
    "gap": (lambda p: _slice(p, 1, w_start_us=11 * SECOND_US), "not contiguous at 10000000 us"),
    "merged": (
        lambda p: _family(p, chain_a=(replace(_of(p).chain_a[0], w_end_us=30 * SECOND_US),)),
        "Mem-Opt has a slice per distinct window",
    ),
    "reach": (lambda p: _slice(p, 1, queries=(2,)), "slice 2: not the queries that reach into it"),
    "keep": (lambda p: _slice(p, 2, keep=None), r"slice 3: keeps None, but its queries can use \(0,\)"),
    "stream gone": (
        lambda p: replace(p, families=(), streams=p.streams[1:]),
        r"streams \[1\] were used before",
    ),
    "next_bit back": (lambda p: replace(p, families=(), next_bit=()), "next_bit of .* went back"),
    "activation": (lambda p: _query(p, 0, since_version=2), 'query "q1": active since 1'),
    "activation early": (lambda p: _query(p, 2, since_version=1), 'query "q3": active since 2'),
    "window moved": (lambda p: _query(p, 0, w_a_us=20 * SECOND_US), "chain of a"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plan_is_refused(name: str) -> None:
    breaks, message = BROKEN[name]
    check_plan(NEXT, FIRST)
    with pytest.raises(InvalidPlan, match=message):
        check_plan(breaks(NEXT), FIRST)


def test_an_id_keeps_its_window() -> None:
    with pytest.raises(InvalidPlan, match='query "q1": key, window or filter changed under the same id 1'):
        build_plan([a_query(1, 11, filter_a=HIGH)], STREAMS, FIRST)


def test_an_id_keeps_its_filter() -> None:
    with pytest.raises(InvalidPlan, match="changed under the same id 1"):
        build_plan([a_query(1, 10, filter_a=LOW)], STREAMS, FIRST)


def test_a_bit_given_before_is_not_given_again() -> None:
    family, q1 = _of(FIRST), _of(FIRST).queries[0]
    swapped = tuple(replace(f, sql=sql) for f, sql in zip(family.filters_a, (HIGH, LOW), strict=True))
    queries = (replace(q1, filter_a=0), replace(family.queries[1], filter_a=1))
    chain = (family.chain_a[0], replace(family.chain_a[1], keep=(1,)))
    plan = replace(
        FIRST, version=2, families=(replace(family, filters_a=swapped, queries=queries, chain_a=chain),)
    )
    with pytest.raises(InvalidPlan, match="changed its bit"):
        check_plan(plan, FIRST)
    renamed = tuple(replace(f, sql=f'"v" > {f.bit}') for f in family.filters_a)
    with pytest.raises(InvalidPlan, match="bit 0 was given before"):
        check_plan(replace(FIRST, version=2, families=(replace(family, filters_a=renamed),)), FIRST)
