"""Arithmetic on numbers and times; an operation that fails gives NULL.

int           + - * // %   bigint: has room for every result
bigint        + - * // %   TRY: overflow            decimal   + - *   TRY: overflow
double        + - *        as it is: infinities     date, timestamp, interval   TRY: out of range
any number    /            double, NULLIF(divisor, 0)
"""

from __future__ import annotations

from sqlglot import exp

from planner.expressions.literals import number
from planner.expressions.types import column_types as ct
from planner.expressions.types.typed import Compiler, Handlers, Typed, cast_to, columns_of

_SYMBOLS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "//",
    exp.Mod: "%",
}

#: Widest decimal that DuckDB keeps in 64 bits.
_SHORT_PRECISION = 18

#: Result type by (left type, operator, right type) for operands that are not both numbers, as in DuckDB.
_TIME_RESULTS = {
    ("timestamp", "+", "interval"): "timestamp",
    ("interval", "+", "timestamp"): "timestamp",
    ("timestamp", "-", "interval"): "timestamp",
    ("timestamp", "-", "timestamp"): "interval",
    ("timestamp", "-", "date"): "interval",
    ("date", "-", "timestamp"): "interval",
    ("date", "+", "interval"): "timestamp",
    ("interval", "+", "date"): "timestamp",
    ("date", "-", "interval"): "timestamp",
    ("date", "-", "date"): "bigint",
    ("date", "+", "int"): "date",
    ("int", "+", "date"): "date",
    ("date", "-", "int"): "date",
    ("interval", "+", "interval"): "interval",
    ("interval", "-", "interval"): "interval",
    ("interval", "*", "int"): "interval",
    ("int", "*", "interval"): "interval",
    ("interval", "*", "bigint"): "interval",
    ("bigint", "*", "interval"): "interval",
}


def binary(compiler: Compiler, node: exp.Binary) -> Typed:
    """Compile ``+ - * / // %`` to SQL that gives NULL where an operation fails.

    n + i -> TRY("n" + "i")
    i + j -> TRY(CAST("i" AS BIGINT) + "j")
    v / w -> "v" / NULLIF("w", 0)
    n // i -> TRY("n" // NULLIF("i", 0))
    d - d -> TRY("d" - "d")
    """
    symbol = _SYMBOLS[type(node)]
    left, right = compiler.compile(node.this), compiler.compile(node.expression)
    return apply(compiler, node, symbol, left, right)


def apply(compiler: Compiler, node: exp.Expr, symbol: str, left: Typed, right: Typed) -> Typed:
    """Compile an arithmetic operator whose operands are compiled already."""
    if left.type == right.type == "null":
        return Typed("NULL", "null")
    left, right = _typed_null(left, right), _typed_null(right, left)
    if ct.is_numeric(left.type) and ct.is_numeric(right.type):
        return _numbers(compiler, node, symbol, left, right)
    if "date" in (left.type, right.type):  # DuckDB adds only 32 bits to a date; sums of int have 64.
        left, right = (cast_to(each, "int") if each.type == "bigint" else each for each in (left, right))
    result = _TIME_RESULTS.get((left.type, symbol, right.type))
    if result is None:
        compiler.mismatch(
            f"{left.type} {symbol} {right.type} is not defined", _hint(symbol, left, right), node
        )
    return Typed(f"TRY({left.operand} {symbol} {right.operand})", result, columns_of((left, right)))


def _typed_null(value: Typed, other: Typed) -> Typed:
    """Return an operand; NULL gets the type of the other operand."""
    if value.type != "null":
        return value
    type_ = "interval" if other.type == "timestamp" else "int" if other.type == "date" else other.type
    return cast_to(value, type_)


def _hint(symbol: str, left: Typed, right: Typed) -> str:
    types = {left.type, right.type}
    if "string" in types and types & {"date", "timestamp", "interval"}:
        return "Write TIMESTAMP '2013-01-01 06:00:00' for a point in time."
    if "string" in types:
        return "Write || to join texts." if symbol == "+" else "Write CAST(x AS DOUBLE) around a text."
    numbers = {type_ for type_ in types if ct.is_numeric(type_)}
    if numbers and types - numbers == {"timestamp"}:
        return "Write ts + INTERVAL '5' MINUTE. A bound of a window has a constant length."
    if numbers and types - numbers == {"interval"}:
        return (
            "Write CAST(x AS INT) * INTERVAL '1' SECOND. A bound of a window has a constant length, such as "
            "INTERVAL '5' MINUTE."
        )
    return "Cast one side: CAST(x AS type)."


def _numbers(compiler: Compiler, node: exp.Expr, symbol: str, left: Typed, right: Typed) -> Typed:
    columns = columns_of((left, right))
    common = ct.common_type(left.type, right.type)
    if symbol == "/":
        return Typed(f"{left.operand} / NULLIF({right.sql}, 0)", "double", columns, form="compound")
    if symbol == "//" and not (ct.is_integer(left.type) and ct.is_integer(right.type)):
        hint = "Write FLOOR(x / y), or cast both sides to BIGINT."
        compiler.mismatch(f"{left.type} // {right.type} is not defined", hint, node)
    exact = "double" not in (left.type, right.type) and not ct.is_integer(common or "")
    if exact and symbol == "*":
        return _product(compiler, node, left, right)
    if common is None or common == "double":
        if "double" not in (left.type, right.type):
            left, right = cast_to(left, "double"), cast_to(right, "double")
        divisor = f"NULLIF({right.sql}, 0)" if symbol == "%" else right.operand
        return Typed(f"{left.operand} {symbol} {divisor}", "double", columns, form="compound")
    if ct.is_integer(common):
        divisor = f"NULLIF({right.sql}, 0)" if symbol in ("//", "%") else right.operand
        return Typed(f"TRY({widened(left).operand} {symbol} {divisor})", "bigint", columns)
    return _decimals(symbol, left, right)


def widened(value: Typed) -> Typed:
    """Return an int as a bigint, so that an operation on two ints has room for its result."""
    if value.type != "int":
        return value
    # A written cast is a TRY_CAST, so ``logic.limits`` sees that this one changes no value.
    return Typed(f"CAST({value.sql} AS BIGINT)", "bigint", value.columns)


def _product(compiler: Compiler, node: exp.Expr, left: Typed, right: Typed) -> Typed:
    """Compile an exact product; its type has room for every product, up to 38 digits."""
    p1, s1 = ct.as_decimal(left.type) or (0, 0)
    p2, s2 = ct.as_decimal(right.type) or (0, 0)
    precision, scale = min(p1 + p2, ct.MAX_PRECISION), s1 + s2
    if scale > ct.MAX_PRECISION:
        compiler.mismatch(
            f"{left.type} * {right.type} needs {scale} digits after the point",
            "Cast one side: CAST(x AS DOUBLE).",
            node,
        )
    result = f"decimal({precision},{scale})"
    if precision > _SHORT_PRECISION:
        # DuckDB multiplies two short decimals in 64 bits, unless one of them is as wide as the product.
        left = cast_to(left, f"decimal({precision},{s1})")
    text = f"TRY({left.operand} * {right.operand})"
    return Typed(f"TRY_CAST({text} AS {result.upper()})", result, columns_of((left, right)))


def _decimals(symbol: str, left: Typed, right: Typed) -> Typed:
    """Compile an exact sum, difference or remainder; its type has room for every result, up to 38 digits."""
    columns = columns_of((left, right))
    p1, s1 = ct.as_decimal(left.type) or (0, 0)
    p2, s2 = ct.as_decimal(right.type) or (0, 0)
    scale = max(s1, s2)
    whole = max(p1 - s1, p2 - s2) + (symbol != "%")
    precision = min(whole + scale, ct.MAX_PRECISION)
    result = f"decimal({precision},{scale})"
    left, right = cast_to(left, result), cast_to(right, result)
    divisor = f"NULLIF({right.sql}, 0)" if symbol == "%" else right.operand
    return Typed(f"TRY_CAST(TRY({left.operand} {symbol} {divisor}) AS {result.upper()})", result, columns)


def negative(compiler: Compiler, node: exp.Neg) -> Typed:
    """Compile unary minus.

    -n -> TRY(-"n")
    -i -> TRY(-CAST("i" AS BIGINT))
    - -5 -> 5
    """
    inner = node.this.unnest()
    sign = "-"
    while isinstance(inner, exp.Neg):
        inner, sign = inner.this.unnest(), "" if sign else "-"
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return number(compiler, node, f"{sign}{inner.name}")
    value = widened(compiler.compile(node.this))
    if not (ct.is_numeric(value.type) or value.type in ("interval", "null")):
        compiler.mismatch(f"-{value.type} is not defined", "Write minus before a number.", node)
    return Typed(f"TRY(-{value.operand})", value.type, value.columns)


HANDLERS: Handlers = {**dict.fromkeys(_SYMBOLS, binary), exp.Neg: negative}
