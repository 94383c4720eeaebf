"""The select list: result columns, their names and types.

A plain column keeps its name. If both streams have a column of this name, or results reserve the name, it
is renamed to ``alias_column``. An expression without AS is named ``col<position>``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from catalog.values.query import PUNCTUATION_OUTPUT, Output
from planner.bind.unmatched.nulls import expression_without
from planner.errors import InvalidOutput
from planner.expressions.expressions import compile_expression
from planner.expressions.types.typed import Typed
from planner.sql.scopes.scope import Scope, SideName, SideScope
from planner.sql.statement import Statement

#: Names of columns that all results have.
RESERVED = frozenset({"_event_time"})
#: Placeholder for the ``_punctuation`` column until the key is known (``planner.bind.announcing``).
_ANNOUNCED = Typed("NULL", "string")


@dataclass(frozen=True, slots=True)
class OutputItem:
    """A result column whose final name is not yet decided."""

    name: str
    value: Typed
    at: exp.Expr
    #: Alias of the column's stream, if the column is plain and has no AS.
    alias: str | None


def bind_outputs(
    statement: Statement, scope: Scope, null_side: SideName | None = None
) -> tuple[tuple[Output, ...], frozenset[tuple[SideName, str]]]:
    """Return the result columns in order, and the columns that they read.

    Args:
        statement: The query.
        scope: Names that the query may use.
        null_side: Side whose columns are NULL in every result.

    Raises:
        InvalidOutput: Two result columns have the same name, or one has a reserved name or no type.
    """
    items: list[OutputItem] = []
    for node in statement.select:
        items += _items(node, scope, len(items) + 1, null_side)
    for node in statement.unused:
        if not node.is_star:
            compile_expression(node.unalias(), scope)
    return outputs_of(_named(items)), frozenset().union(*(item.value.columns for item in items))


def outputs_of(items: Sequence[OutputItem]) -> tuple[Output, ...]:
    """Return result columns from items that have their final names.

    Raises:
        InvalidOutput: Two result columns have the same name, or one has a reserved name.
    """
    seen: dict[str, str] = {}
    for item in items:
        folded = item.name.lower()
        reserved = folded == PUNCTUATION_OUTPUT and item.value is not _ANNOUNCED
        if folded in RESERVED or reserved or not folded:
            raise InvalidOutput(
                f'result column name "{item.name}" is reserved',
                hint="Write another name after AS.",
                at=item.at,
            )
        if folded in seen:
            raise InvalidOutput(
                f'result column "{item.name}" appears twice', hint="Write another name after AS.", at=item.at
            )
        seen[folded] = item.name
    return tuple(
        Output(item.name, item.value.sql, item.value.type, tuple(sorted(item.value.columns)))
        for item in items
    )


def is_announcement(node: exp.Expr, sides: Sequence[SideScope]) -> bool:
    """Return whether an entry of the select list is ``_punctuation``, and no stream has such a column."""
    plain = node.unnest()
    return (
        isinstance(plain, exp.Column)
        and not plain.args.get("table")
        and plain.name.lower() == PUNCTUATION_OUTPUT
        and all(side.stream.column(plain.name) is None for side in sides)
    )


def _items(node: exp.Expr, scope: Scope, position: int, null_side: SideName | None) -> list[OutputItem]:
    """Return the result columns that one entry of the select list makes."""

    def compiled(part: exp.Expr) -> Typed:
        value = typed_output(compile_expression(part, scope), part)
        if null_side is None:
            return value
        return compile_expression(expression_without(part, scope, null_side), scope)

    def all_of(side: SideScope) -> list[OutputItem]:
        return [
            OutputItem(
                column.name,
                compiled(exp.column(exp.to_identifier(column.name), exp.to_identifier(side.alias))),
                node,
                side.alias,
            )
            for column in side.stream.columns
        ]

    if isinstance(node, exp.Star):
        _refuse_star_options(node)
        return [item for side in scope.visible(node) for item in all_of(side)]
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        _refuse_star_options(node.this)
        return all_of(scope.qualifier(node))
    if isinstance(node, exp.Alias):
        return [OutputItem(node.alias, compiled(node.this), node, None)]
    if is_announcement(node, scope.written):
        return [OutputItem(PUNCTUATION_OUTPUT, _ANNOUNCED, node, None)]
    value = compiled(node)
    plain = node.unnest()
    if isinstance(plain, exp.Column):
        of, column = scope.found(plain)
        return [OutputItem(column.name, value, node, of.alias)]
    return [OutputItem(f"col{position}", value, node, None)]


def _refuse_star_options(star: exp.Star) -> None:
    """Refuse ``*`` with EXCEPT, REPLACE or RENAME."""
    options = [name for name in ("except_", "replace", "rename", "ilike") if star.args.get(name)]
    if options:
        raise InvalidOutput(
            "* with EXCEPT, REPLACE or RENAME is not supported", hint="Name the columns one by one.", at=star
        )


def typed_output(value: Typed, node: exp.Expr) -> Typed:
    """Return the value; raise InvalidOutput if a result column cannot have its type."""
    if value.type == "interval":
        raise InvalidOutput(
            "an interval cannot be a result column",
            hint="Write epoch_us(b.ts) - epoch_us(a.ts), or date_diff('second', a.ts, b.ts).",
            at=node,
        )
    if value.type == "null":
        raise InvalidOutput("NULL has no type", hint="Write CAST(NULL AS type).", at=node)
    return value


def _named(items: list[OutputItem]) -> list[OutputItem]:
    """Name a plain column ``alias_column`` if its own name occurs twice or is reserved for results."""
    count = Counter(item.name.lower() for item in items)
    return [
        OutputItem(f"{item.alias}_{item.name}", item.value, item.at, item.alias)
        if item.alias is not None
        and (count[item.name.lower()] > 1 or item.name.lower() in {*RESERVED, PUNCTUATION_OUTPUT})
        else item
        for item in items
    ]
