"""Compilation of CASE, IF and NULLIF, and conversion of several values to their common type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from sqlglot import exp

from planner.expressions.comparisons import comparable, condition
from planner.expressions.literals import time_literal
from planner.expressions.types import column_types as ct
from planner.expressions.types.typed import Compiler, Handlers, Typed, cast_to, columns_of


def wrong_count(
    compiler: Compiler, node: exp.Expr, name: str, takes: str, arguments: Sequence[exp.Expr]
) -> NoReturn:
    """Raise TypeMismatch for a call with too few or too many arguments."""
    compiler.mismatch(
        f"{name.lower()} takes {takes} argument{'' if takes == '1' else 's'}, not {len(arguments)}",
        f"Write {name.lower()}({', '.join('xyz'[: int(takes[0])])}).",
        node,
    )


def alike(compiler: Compiler, node: exp.Expr, values: Sequence[Typed]) -> list[Typed]:
    """Return the values converted to the common type to which all of them widen."""
    times = [value.type for value in values if ct.is_time(value.type)]
    if times:
        values = [_as_time(value, max(times)) for value in values]
    common = "null"
    for value in values:
        wider = ct.common_type(common, value.type)
        if wider is None or value.type == "interval":
            compiler.mismatch(
                f"{common if wider is None else value.type} and {value.type} have no common type"
                if wider is None
                else "an interval cannot be one of these values",
                "Cast one side: CAST(x AS type).",
                node,
            )
        common = wider
    if common == "null":
        return list(values)
    return [cast_to(value, common) for value in values]


def _as_time(value: Typed, type_: str) -> Typed:
    if value.literal is None:
        return value
    return time_literal(value.literal, type_) or value


def choice(compiler: Compiler, node: exp.Expr, arguments: Sequence[exp.Expr]) -> Typed:
    """Compile IF(condition, then, else) as CASE.

    IF(f, 1, 2) -> CASE WHEN "f" THEN 1 ELSE 2 END
    """
    if not 2 <= len(arguments) <= 3:
        wrong_count(compiler, node, "if", "2 to 3", arguments)
    default = arguments[2] if len(arguments) == 3 else None
    return _case(compiler, node, [(condition(compiler, arguments[0], "IF"), arguments[1])], default)


def null_if(compiler: Compiler, node: exp.Expr, arguments: Sequence[exp.Expr]) -> Typed:
    """Compile NULLIF(x, y).

    NULLIF(v, 0) -> CASE WHEN "v" = 0 THEN NULL ELSE "v" END
    """
    if len(arguments) != 2:
        wrong_count(compiler, node, "nullif", "2", arguments)
    value, other = compiler.compile(arguments[0]), compiler.compile(arguments[1])
    left, right = comparable(compiler, node, value, other)
    equal = f"{left.operand} = {right.operand}"
    text = f"CASE WHEN {equal} THEN NULL ELSE {value.sql} END"
    return Typed(text, value.type, columns_of((value, right)))


def case(compiler: Compiler, node: exp.Case) -> Typed:
    """Compile CASE, with or without an operand.

    CASE i WHEN 1 THEN 'a' ELSE s END -> CASE WHEN "i" = 1 THEN 'a' ELSE "s" END
    """
    branches = []
    for when in node.args["ifs"]:
        if node.this is None:
            test = condition(compiler, when.this, "WHEN")
        else:
            equal = exp.EQ(this=node.this.copy(), expression=when.this.copy())
            test = compiler.compile(equal)
        branches.append((test, when.args["true"]))
    return _case(compiler, node, branches, node.args.get("default"))


def _case(
    compiler: Compiler, node: exp.Expr, branches: list[tuple[Typed, exp.Expr]], default: exp.Expr | None
) -> Typed:
    results = [compiler.compile(result) for _, result in branches]
    if default is not None:
        results.append(compiler.compile(default))
    results = alike(compiler, node, results)
    parts = [f"WHEN {test.sql} THEN {r.sql}" for (test, _), r in zip(branches, results, strict=False)]
    parts += [f"ELSE {results[-1].sql}"] if default is not None else []
    type_ = next((r.type for r in results if r.type != "null"), "null")
    return Typed(f"CASE {' '.join(parts)} END", type_, columns_of([*results, *(t for t, _ in branches)]))


HANDLERS: Handlers = {exp.Case: case}
