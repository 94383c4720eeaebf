"""Each rule of the expression compiler opens with examples, CQL -> DuckDB text, and they are true."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from sqlglot import exp

from planner.expressions import arithmetic, comparisons, conditionals, literals, syntax_forms
from planner.expressions.expressions import bare, compile_expression
from planner.sql.scopes.scope import ResolvedColumn
from planner.sql.statement import parse_condition
from tests.planner.cql_filters import F

RULES = {
    handler
    for module in (arithmetic, comparisons, conditionals, literals, syntax_forms)
    for handler in module.HANDLERS.values()
}


class Names:
    """Columns of the one stream."""

    def column(self, node: exp.Column) -> ResolvedColumn:
        column = F.column(node.name)
        assert column is not None
        return ResolvedColumn("a", column)


@pytest.mark.parametrize("rule", sorted(RULES, key=lambda rule: rule.__qualname__), ids=lambda r: r.__name__)
def test_a_rule_does_what_its_examples_say(rule: Callable[..., Any]) -> None:
    lines = [line.strip() for line in inspect.getdoc(rule).splitlines() if " -> " in line]  # type: ignore[union-attr]
    assert lines
    for line in lines:
        cql, _, sql = line.partition(" -> ")
        assert compile_expression(parse_condition(cql), Names(), bare).sql == sql
