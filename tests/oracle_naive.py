"""A second oracle, by nested loops in plain Python: slow, and shares no evaluator with the first.

It catches what a DuckDB oracle cannot see of itself: NaN and -0.0 in hash joins, three-valued logic, a wrong
window in the generated SQL. Use it on tens of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.oracle import FamilySide, History, Life
from tests.workload_spec import Call, Col, Expr, Lit

#: A row's columns by name; values are Python's, so they have no narrower type.
Row = dict[str, Any]


def naive_positions(history: History, life: Life) -> list[tuple[int | None, int | None]]:
    """Return the (position of a, position of b) of every result of ``life``, in result order."""
    stream_a = life.query.side(life.written("a")).stream
    stream_b = life.query.side(life.written("b")).stream
    rows = {side: history.streams[s].rows.to_pylist() for side, s in (("a", stream_a), ("b", stream_b))}
    matches = []
    for row_a in rows["a"]:
        for row_b in rows["b"]:
            left, right = (row_b, row_a) if life.swapped else (row_a, row_b)
            batch = max(row_a["_batch"], row_b["_batch"])
            if (
                _present(row_a)
                and _present(row_b)
                and life.at(batch)
                and _entitled(history, life, "a", row_a)
                and _entitled(history, life, "b", row_b)
                and _matches(life, left, right)
            ):
                matches.append((batch, max(row_a["_t"], row_b["_t"]), row_a["_pos"], row_b["_pos"]))
    found: list[tuple[int, int, int | None, int | None]] = []
    if life.query.kind in ("inner", "outer"):
        found += matches
    for side in _SIDES:
        if life.written(side) not in life.query.preserved:
            continue
        firsts: dict[int, tuple[int, int]] = {}
        for batch, time, a, b in sorted(matches):
            firsts.setdefault(a if side == "a" else b, (batch, time))
        alone = firsts if life.query.kind == "semi" else _absent(history, life, side, rows[side], firsts)
        found += [
            (batch, time, pos, None) if side == "a" else (batch, time, None, pos)
            for pos, (batch, time) in alone.items()
        ]
    return [(a, b) for _, _, a, b in sorted(found, key=_null_last)]


def _null_last(result: tuple[int, int, int | None, int | None]) -> tuple[float, ...]:
    """Order as DuckDB does."""
    return (*result[:2], *(math.inf if position is None else position for position in result[2:]))


def _absent(
    history: History, life: Life, side: FamilySide, rows: list[Row], matched: dict[int, tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    """Return the batch and event time of the rows that the other stream passes without a match."""
    written = life.written(side)
    spec = life.query.side(written)
    watermarks = history.streams[life.query.side("r" if written == "l" else "l").stream].watermarks
    found: dict[int, tuple[int, int]] = {}
    for row in rows:
        if (
            not _present(row)
            or row["_batch"] < life.added
            or row["_pos"] in matched
            or spec.window_us is None
        ):
            continue
        due = row["_t"] + spec.window_us
        passes = all(_evaluate(f, row, row) is True for f in spec.filters)
        at = next(
            (n for n, w in enumerate(watermarks) if n >= row["_batch"] and w is not None and w >= due), None
        )
        if passes and at is not None and life.at(at):
            found[row["_pos"]] = (at, due)
    return found


def _present(row: Row) -> bool:
    return row["_t"] is not None and not row["_late"]


def _entitled(history: History, life: Life, side: FamilySide, row: Row) -> bool:
    return row["_batch"] >= life.added or (life.query.backfill == "state" and _held(history, life, side, row))


def _held(history: History, life: Life, side: FamilySide, row: Row) -> bool:
    other: FamilySide = "b" if side == "a" else "a"
    watermark = history.streams[life.query.side(life.written(other)).stream].watermarks[life.added - 1]
    for peer in history.lives:
        if peer.family != life.family or not peer.at(life.added - 1):
            continue
        spec = peer.query.side(peer.written(side))
        reaches = watermark is None or spec.window_us is None or row["_t"] + spec.window_us > watermark
        passes = all(_evaluate(f, row, row) is True for f in spec.filters)
        if reaches and passes and _entitled(history, peer, side, row):
            return True
    return False


def _matches(life: Life, left: Row, right: Row) -> bool:
    query = life.query
    distance = right["_t"] - left["_t"]
    window = query.left.window_us if distance >= 0 else query.right.window_us
    if window is not None and abs(distance) >= window and distance != 0:
        return False
    if any(_compare("=", left[x], right[y]) is not True for x, y in query.key):
        return False
    conjuncts = (*query.left.filters, *query.right.filters, *query.residual)
    return all(_evaluate(e, left, right) is True for e in conjuncts)


def _order(value: Any) -> tuple[int, Any]:
    """Return a sort key in which NaN is equal to itself and above every number."""
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda x, y: x == y,
    "<>": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}


def _compare(op: str, x: Any, y: Any) -> bool | None:
    return None if x is None or y is None else _COMPARISONS[op](_order(x), _order(y))


def _and(values: list[bool | None]) -> bool | None:
    return False if False in values else None if None in values else True


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _evaluate(expr: Expr, left: Row, right: Row) -> Any:
    if isinstance(expr, Lit):
        return expr.value
    if isinstance(expr, Col):
        return (left if expr.side == "l" else right)[expr.name]
    args = [_evaluate(a, left, right) for a in expr.args]
    if expr.op in _COMPARISONS:
        return _compare(expr.op, args[0], args[1])
    match expr.op:
        case "and":
            return _and(args)
        case "or":
            return _not(_and([_not(a) for a in args]))
        case "not":
            return _not(args[0])
        case "isnull":
            return args[0] is None
        case "notnull":
            return args[0] is not None
        case "between":
            return _and([_compare(">=", args[0], args[1]), _compare("<=", args[0], args[2])])
        case "in":
            return _not(_and([_not(_compare("=", args[0], a)) for a in args[1:]]))
        case "coalesce":
            return next((a for a in args if a is not None), None)
    return None if None in args else _strict(expr, args)


def _strict(expr: Call, args: list[Any]) -> Any:
    """Evaluate a function that is NULL on NULL."""
    match expr.op:
        case "+" | "-" | "*":
            value = (
                args[0] + args[1]
                if expr.op == "+"
                else args[0] - args[1]
                if expr.op == "-"
                else args[0] * args[1]
            )
            return None if isinstance(value, int) and not -(2**63) <= value < 2**63 else value
        case "/":
            return None if args[1] == 0 else args[0] / args[1]
        case "like":
            prefix = args[1]
            if not prefix.endswith("%") or "%" in prefix[:-1] or "_" in prefix:
                raise ValueError("only LIKE 'prefix%' is modelled")
            return args[0].startswith(prefix[:-1])
        case "abs":
            return abs(args[0])
        case "upper":
            return args[0].upper()
        case "length":
            return len(args[0])
        case _:
            raise ValueError(f"operator {expr.op} is not modelled")


_SIDES: tuple[FamilySide, FamilySide] = ("a", "b")
