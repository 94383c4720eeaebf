"""A filter that is said to imply another one does so on every row; what simple comparisons imply is found."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operators.filters.expressions import Bools, evaluate_filters
from planner.bind.canonical import canonical_filter
from planner.errors import TypeMismatch
from planner.predicates.logic.implication import implies as forms_imply
from planner.predicates.logic.implication import normal_forms
from planner.predicates.read_condition import read_condition
from tests.examples import examples
from tests.planner.cql_filters import FILTER, LEAF, F, rows

ROWS = rows()

_SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def implies(strong: str, weak: str) -> bool:
    return forms_imply(*(normal_forms(read_condition(text)) for text in (strong, weak)))


def passing(filters: list[str]) -> list[Bools]:
    return evaluate_filters(ROWS, filters)


def canonical(texts: list[str]) -> list[str]:
    """Canonical filters of the texts that are well typed."""
    found = []
    for text in texts:
        try:
            found.append(canonical_filter(text, {"F": F})[1])
        except TypeMismatch:
            continue
    return found


#: Filters that often imply each other: the same leaves in conjunctions and disjunctions.
_RELATED = st.lists(LEAF.filter(lambda text: "F." in text), min_size=2, max_size=4).flatmap(
    lambda leaves: st.lists(
        st.tuples(
            st.lists(st.sampled_from(leaves), min_size=1, max_size=3), st.sampled_from([" AND ", " OR "])
        ).map(lambda pair: pair[1].join(pair[0])),
        min_size=2,
        max_size=6,
    )
)


@settings(_SETTINGS, max_examples=examples(200))
@given(texts=st.one_of(_RELATED, st.lists(FILTER, min_size=2, max_size=4)))
def test_rows_that_pass_a_filter_pass_those_it_implies(texts: list[str]) -> None:
    filters = canonical(texts)
    passed = dict(zip(filters, passing(filters), strict=True))
    for f, g in itertools.permutations(passed, 2):
        if implies(f, g):
            assert not np.any(passed[f] & ~passed[g]), (f, g)


_COMPARISON = st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.integers(0, 3))


@settings(_SETTINGS, max_examples=examples(200))
@given(f=_COMPARISON, g=_COMPARISON)
def test_what_a_comparison_with_a_constant_implies_is_found(f: tuple[str, int], g: tuple[str, int]) -> None:
    beside = pa.table({"v": np.arange(-1.0, 4.5, 0.5)})  # Each constant, and what is between and around them.
    texts = [f'"v" {operator} {constant}' for operator, constant in (f, g)]
    passes_f, passes_g = evaluate_filters(beside, texts)
    assert implies(*texts) == (not np.any(passes_f & ~passes_g))


@pytest.mark.parametrize(
    ("strong", "weak"),
    [
        ('"v" > 10', '"v" > 5'),
        ('"v" > 10', '"v" >= 10'),
        ('"v" > 10', '"v" <> 3'),
        ('"v" > 10', '"v" IS NOT NULL'),
        ('"v" > 10', '"v" > 5 OR "w" = 1'),
        ('"v" > 10', '"v" IS DISTINCT FROM 3'),
        ('"v" > 10 AND "w" = 1', '"w" = 1'),
        ('"v" > 10 AND "w" = 1', '"v" > 9 AND "w" IN (1, 2)'),
        ('"v" = 1', '"v" IN (1, 2)'),
        ('"v" IN (1, 2)', '"v" < 3 AND "v" > 0'),
        ('"v" < 3 AND "v" > 0', '"v" > 0'),
        ('"f"', '"f" IS NOT FALSE'),
        ("\"s\" LIKE 'a%'", '"s" LIKE \'a%\' OR "f"'),
        ('"v" < "w"', '"v" <= "w"'),
        ('"v" < "w"', '"w" IS NOT NULL'),
        ('("f" AND "v" = 1) OR ("g" AND "v" = 2)', '"f" OR "g"'),
        ("\"ts\" > TIMESTAMP '2013-02-01 00:00:00'", "\"ts\" > TIMESTAMP '2013-01-31 00:00:00'"),
        ("FALSE", '"v" > 1'),
        ('"v" > 1', "TRUE"),
    ],
)
def test_a_stronger_filter_implies_a_weaker_one_and_not_the_other_way(strong: str, weak: str) -> None:
    assert implies(strong, weak)
    assert implies(strong, strong)
    assert not implies(weak, strong)


@pytest.mark.parametrize(
    ("f", "g"),
    [
        ('"v" > 10', '"w" > 5'),
        ('"n" <= 9007199254740992', '"n" <= 9007199254740992.0e0'),  # Compared in two types: not looked into.
        ("\"s\" LIKE 'ab%'", "\"s\" LIKE 'a%'"),
        ('"v" > 5 OR "w" = 1', '"v" > 5'),
    ],
)
def test_what_is_not_seen_to_follow_does_not(f: str, g: str) -> None:
    assert not implies(f, g)


def test_many_filters_are_compared() -> None:
    forty = [f'"v" > {n} AND "s" = \'{n % 7}\'' for n in range(40)]
    assert sum(implies(f, g) for f, g in itertools.product(forty, forty)) == 40 + sum(
        1 for m in range(40) for n in range(40) if m > n and m % 7 == n % 7
    )
