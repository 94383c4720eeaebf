"""Function calls, CASE and casts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NoReturn

from sqlglot import exp

from catalog.sql_text import text_literal
from catalog.wording.wording import nearest_or_known
from planner.errors import UnknownFunction
from planner.expressions.arithmetic import apply, widened
from planner.expressions.conditionals import alike, choice, null_if, wrong_count
from planner.expressions.functions import (
    AGGREGATES,
    EXTRACT_ONLY,
    FUNCTIONS,
    INSTEAD,
    NOT_REPEATABLE,
    UNITS,
    Function,
)
from planner.expressions.literals import time_literal
from planner.expressions.text_length import MAX_TEXT, grows, longest_text
from planner.expressions.types import column_types as ct
from planner.expressions.types.typed import Compiler, Handlers, Typed, cast_to, columns_of

#: Compiles calls of a function whose SQL depends on the types of the arguments.
Special = Callable[[Compiler, exp.Expr, Sequence[exp.Expr]], Typed]

_MAX_COUNT = 10_000
#: Highest number of a group in a regular expression that DuckDB can extract.
_MAX_GROUP = 9


def call(compiler: Compiler, node: exp.Anonymous) -> Typed:
    """Compile ``name(arguments)``."""
    return call_named(compiler, node, node.name, node.expressions)


def call_named(compiler: Compiler, node: exp.Expr, name: str, arguments: Sequence[exp.Expr]) -> Typed:
    """Compile a call of a function by name.

    Raises:
        UnknownFunction: No function has that name.
        UnsupportedCql: The function is an aggregate, or its result can differ when a batch is repeated.
        TypeMismatch: The function does not take this number of arguments, or arguments of these types.
    """
    upper = name.upper()
    special = _SPECIAL.get(upper)
    if special is not None:
        return special(compiler, node, arguments)
    function = FUNCTIONS.get(upper)
    if function is None:
        _refuse_function(compiler, node, name)
    least = len(function.takes) - function.optional
    if len(arguments) < least or (len(arguments) > len(function.takes) and not function.repeats):
        takes = f"{least}" if not function.optional else f"{least} to {len(function.takes)}"
        takes = f"{least} or more" if function.repeats else takes
        wrong_count(compiler, node, name, takes, arguments)
    kinds = [*function.takes, *function.takes[-1:] * (len(arguments) - len(function.takes))]
    values = [argument(compiler, part, name, kind) for part, kind in zip(arguments, kinds, strict=False)]
    if "alike" in function.takes:
        values = alike(compiler, node, values)
    text = function.sql.format(*(value.sql for value in values), args=", ".join(v.sql for v in values))
    return Typed(text, _result(function, values), columns_of(values))


def _result(function: Function, values: Sequence[Typed]) -> str:
    return values[0].type if function.gives in ("first", "common") else function.gives


def _refuse_function(compiler: Compiler, node: exp.Expr, name: str) -> NoReturn:
    upper = name.upper()
    if upper in AGGREGATES:
        hint = "Select the joined rows and aggregate them where you read the results."
        compiler.refuse(f"the aggregate {upper}", hint, node)
    if upper in NOT_REPEATABLE:
        hint = (
            "A query must give the same results on every run over the same rows: compare with a column or a "
            "literal."
        )
        compiler.refuse(f"{upper}()", hint, node)
    raise UnknownFunction(
        f'function "{name.lower()}" does not exist',
        hint=INSTEAD.get(upper) or nearest_or_known(name, [n.lower() for n in known_functions()], "function"),
        at=node,
    )


def known_functions() -> list[str]:
    """Return the names of all functions, sorted."""
    return sorted({*FUNCTIONS, *_SPECIAL})


def argument(compiler: Compiler, node: exp.Expr, name: str, kind: str) -> Typed:
    """Compile an argument; raise TypeMismatch if the function does not take its type."""
    if kind in ("unit", "count", "group", "pattern"):
        return _literal_argument(compiler, node, name, kind)
    value = compiler.compile(node)
    if value.type == "null":
        return value if kind in ("any", "alike") else cast_to(value, _NULL_AS.get(kind, kind))
    if kind in ("any", "alike"):
        if value.type == "interval":
            compiler.mismatch(
                f"{name.lower()} takes no interval", "Subtract epoch_us of the two times instead.", node
            )
        return value
    if kind in ("timestamp", "date") and value.literal is not None:
        value = time_literal(value.literal, kind) or value
    fits = {
        "double": ct.is_numeric(value.type),
        "number": ct.is_numeric(value.type),
        "integer": ct.is_integer(value.type),
        "bigint": ct.is_integer(value.type),
        "time": ct.is_time(value.type),
        "timestamp": ct.is_time(value.type),
    }
    if not fits.get(kind, value.type == kind):
        wanted = {"double": "a number", "number": "a number", "integer": "a whole number", "string": "a text"}
        compiler.mismatch(
            f"{name.lower()} takes {wanted.get(kind, 'a ' + kind)}, not {value.type}",
            f"Cast the argument: CAST(x AS {_NULL_AS.get(kind, kind).replace('string', 'VARCHAR').upper()}).",
            node,
        )
    return cast_to(value, kind) if kind in ("double", "timestamp", "bigint") else value


_NULL_AS = {"number": "double", "integer": "bigint", "time": "timestamp"}


def _literal_argument(compiler: Compiler, node: exp.Expr, name: str, kind: str) -> Typed:
    """Compile an argument that has to be a literal."""
    if kind == "unit":
        return Typed(text_literal(unit(compiler, node, name)), "string")
    value = compiler.compile(node)
    if kind == "pattern":
        if value.literal is None:
            compiler.mismatch(
                f"{name.lower()} takes a literal pattern", "Write the pattern in quotes: '^A[0-9]+$'.", node
            )
        if (wrong := pattern_error(value.literal)) is not None:
            compiler.mismatch(
                f"{value.sql} is not a regular expression", f"{wrong[:1].upper()}{wrong[1:]}.", node
            )
        return value
    most = _MAX_GROUP if kind == "group" else _MAX_COUNT
    if value.columns or not value.sql.isdigit() or int(value.sql) > most:
        compiler.mismatch(
            f"{name.lower()} takes a literal whole number", f"Write a number from 0 to {most}.", node
        )
    return value


def pattern_error(pattern: str) -> str | None:
    """Return a description of the error in a regular expression, or None if it is valid.

    DuckDB compiles a constant pattern before it evaluates the expression, so TRY does not catch an error in
    the pattern. The pattern must therefore be valid in both DuckDB's RE2 and Python's ``re``.
    """
    if re.search(r"\(\?[<!=#(P]|\\[1-9ZkgG]|\+\+|\*\+|\?\+|\}\+", pattern):
        return "look-around, back-references, named groups and possessive repeats are not supported"
    if any(int(n) > 1000 for n in re.findall(r"\{(\d+)|,(\d+)\}", pattern) for n in n if n):
        return "a repeat of more than 1000 is not supported"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return None


def unit(compiler: Compiler, node: exp.Expr, name: str, extract: bool = False) -> str:
    """Return the unit of time that an argument names, written as a word or as a quoted text."""
    written = node.name if isinstance(node, exp.Column | exp.Var | exp.Literal) else ""
    found = UNITS.get(written.lower()) or UNITS.get(written.lower().removesuffix("s"))
    known = [u for u in dict.fromkeys(UNITS.values()) if extract or u not in EXTRACT_ONLY]
    if found not in known:
        compiler.mismatch(
            f'{name.lower()} does not know the unit "{written or node.sql()}"',
            f"Write one of {', '.join(known)}.",
            node,
        )
    return found or ""


# Functions whose SQL depends on the types of the arguments


def _one(compiler: Compiler, node: exp.Expr, arguments: Sequence[exp.Expr], name: str) -> Typed:
    if len(arguments) != 1:
        wrong_count(compiler, node, name, "1", arguments)
    return argument(compiler, arguments[0], name, "number")


def absolute(compiler: Compiler, node: exp.Expr, arguments: Sequence[exp.Expr]) -> Typed:
    """Compile ABS."""
    value = widened(_one(compiler, node, arguments, "abs"))
    return Typed(f"TRY(abs({value.sql}))", value.type, value.columns)


def _whole(name: str) -> Special:
    def compile_whole(compiler: Compiler, node: exp.Expr, arguments: Sequence[exp.Expr]) -> Typed:
        value = _one(compiler, node, arguments, name)
        if ct.is_integer(value.type):
            return value
        parts = ct.decimal_parts(value.type)
        type_ = value.type if parts is None else f"decimal({parts[0]},0)"
        return Typed(f"{name}({value.sql})", type_, value.columns)

    return compile_whole


def rounded(compiler: Compiler, node: exp.Expr, arguments: Sequence[exp.Expr]) -> Typed:
    """Compile ROUND(x [, digits])."""
    if not 1 <= len(arguments) <= 2:
        wrong_count(compiler, node, "round", "1 to 2", arguments)
    value = argument(compiler, arguments[0], "round", "number")
    digits = 0
    if len(arguments) == 2:
        count = _literal_argument(compiler, arguments[1], "round", "count")
        digits = min(int(count.sql), ct.MAX_PRECISION)
    if ct.is_integer(value.type):
        return value
    if (parts := ct.decimal_parts(value.type)) is not None:
        precision, scale = parts
        return value if digits >= scale else cast_to(value, f"decimal({precision},{digits})")
    return Typed(f"round({value.sql}, {digits})", "double", value.columns)


def modulo(compiler: Compiler, node: exp.Expr, arguments: Sequence[exp.Expr]) -> Typed:
    """Compile MOD(x, y) as x % y."""
    if len(arguments) != 2:
        wrong_count(compiler, node, "mod", "2", arguments)
    left, right = (argument(compiler, part, "mod", "number") for part in arguments)
    return apply(compiler, node, "%", left, right)


def replaced(compiler: Compiler, node: exp.Expr, arguments: Sequence[exp.Expr]) -> Typed:
    """Compile REPLACE(text, part, to); the result is NULL if it could be longer than ``MAX_TEXT``."""
    if len(arguments) != 3:
        wrong_count(compiler, node, "replace", "3", arguments)
    if longest_text(node) > MAX_TEXT:
        compiler.refuse(
            f"replace to a text of more than {MAX_TEXT:,} characters",
            "Use shorter replacement texts, or shorten the first argument with left(x, n).",
            node,
        )
    text, part, to = (argument(compiler, value, "replace", "string") for value in arguments)
    sql = f"replace({text.sql}, {part.sql}, {to.sql})"
    if grows(arguments[2], arguments[1]) and columns_of((text, part, to)):
        bound = f"length({text.sql}) * length({to.sql}) <= {MAX_TEXT}"
        sql = f"CASE WHEN {bound} THEN {sql} END"
    return Typed(sql, "string", columns_of((text, part, to)))


_SPECIAL: dict[str, Special] = {
    "REPLACE": replaced,
    "ABS": absolute,
    "CEIL": _whole("ceil"),
    "CEILING": _whole("ceil"),
    "FLOOR": _whole("floor"),
    "ROUND": rounded,
    "MOD": modulo,
    "IF": choice,
    "IIF": choice,
    "NULLIF": null_if,
}


HANDLERS: Handlers = {exp.Anonymous: call}
