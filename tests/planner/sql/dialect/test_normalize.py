"""Conditions taken apart are true, false and NULL for the same values of their leaves."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp, parse_one

from planner.sql.dialect.normalize import conjuncts, distributed, operands, pushed
from tests.examples import examples

#: TRUE, NULL and FALSE in their order: AND is the least, OR the greatest (Kleene's logic).
_TRUTHS = (1, 0, -1)

CONDITION = st.recursive(
    st.sampled_from("abcd"),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' AND '.join(parts)})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' OR '.join(parts)})"),
        inner.map(lambda part: f"NOT ({part})"),
    ),
    max_leaves=9,
)


def truth(node: exp.Expr, leaves: dict[str, int]) -> int:
    if isinstance(node, exp.Paren):
        return truth(node.this, leaves)
    if isinstance(node, exp.Not):
        return -truth(node.this, leaves)
    if isinstance(node, exp.And | exp.Or):
        parts = [truth(part, leaves) for part in operands(node)]
        return min(parts) if isinstance(node, exp.And) else max(parts)
    return leaves[node.name]


@settings(max_examples=examples(200), deadline=None)
@given(text=CONDITION)
def test_the_conjuncts_of_a_condition_are_the_condition(text: str) -> None:
    node = parse_one(text)
    parts = [piece for conjunct in conjuncts([node]) for piece in distributed(conjunct)]
    for truths in itertools.product(_TRUTHS, repeat=4):
        leaves = dict(zip("abcd", truths, strict=True))
        assert min((truth(part, leaves) for part in parts), default=1) == truth(node, leaves)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("(a.k = b.k AND a.v > 1) OR (b.k = a.k AND a.v < 0)", ["a.k = b.k", "a.v > 1 OR a.v < 0"]),
        ("a.v > 1 OR (a.v > 1 AND b.v > 2)", ["a.v > 1"]),
        ("a.v > 1 OR (b.v > 2 AND b.x = 1)", ["a.v > 1 OR b.v > 2", "a.v > 1 OR b.x = 1"]),
        ("a.v > 1 OR b.v > 2", ["a.v > 1 OR b.v > 2"]),
    ],
)
def test_an_or_over_ands_is_multiplied_out(text: str, parts: list[str]) -> None:
    assert sorted(part.sql() for part in distributed(pushed(parse_one(text)))) == sorted(parts)


def test_what_would_grow_too_much_is_left_as_it_is() -> None:
    node = pushed(parse_one(" OR ".join(f"(a{n} AND b{n})" for n in range(8))))
    assert distributed(node) == [node]
