"""Replacement of parts of a query's CQL text: windows, filters and select list.

The text is parsed and then written in one standard form:

    SELECT <list> FROM A [RANGE 30 SECONDS] AS a, B [NOW] AS b WHERE <condition> AND <condition> ...

Outer, semi and anti joins are written as JOIN ... ON, or as [NOT] EXISTS if the query used EXISTS.

Each window is written after its stream. Conditions on event times that only express a window are dropped;
other conditions on event times stay. Conditions are written in the form in which ``bind.bind`` uses them: NOT
is pushed inwards, and AND is split. Then the old and the new text are both bound, and the change is refused
if anything else in the query has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import TokenType, exp

from catalog.errors import error_path
from catalog.sql_text import quoted
from catalog.times.durations import duration
from catalog.values.change import BOTH, QueryParts
from catalog.values.query import UNBOUNDED_US, Clock, Query, Side
from catalog.values.stream import Stream
from catalog.wording.wording import nearest_or_known
from planner.bind.bind import bind
from planner.bind.canonical import NEVER
from planner.bind.pieces import key_columns, pieces
from planner.bind.time_bounds import time_bounds
from planner.bind.unmatched.absence import JoinMeaning, join_meaning
from planner.errors import CqlSyntaxError, InvalidWindow, NotRewritable, UnknownColumn, UnknownStream
from planner.expressions.expressions import compile_condition
from planner.sql.dialect.cql import Cql
from planner.sql.dialect.locate import located
from planner.sql.scopes.scope import Scope, SideName, SideScope
from planner.sql.statement import Statement, group_text, parse, parse_condition, select_list_text, tokens_of

_UNITS = (
    ("DAY", 86_400_000_000),
    ("HOUR", 3_600_000_000),
    ("MINUTE", 60_000_000),
    ("SECOND", 1_000_000),
    ("MILLISECOND", 1_000),
    ("MICROSECOND", 1),
)

#: Tokens that end a select list.
_ENDS = frozenset({TokenType.FROM, TokenType.WHERE, TokenType.JOIN, TokenType.WINDOW, TokenType.ON})


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The conditions of a query, without bounds on event times that only express a window.

    Attributes:
        filters: Conditions on one side alone, by side, in an inner join; otherwise empty.
        on: In an inner join, all other conditions. In any other join, the conditions in ON or inside EXISTS.
        where: Conditions in WHERE, unless the join is inner.
    """

    filters: Mapping[SideName, list[exp.Expr]]
    on: list[exp.Expr]
    where: list[exp.Expr]


@located
def rewrite(cql: str, streams: Mapping[str, Stream], parts: QueryParts) -> str:
    """Return a query's text with some parts replaced.

    Args:
        cql: CQL text of a query, which ``bind`` accepts.
        streams: Registered streams by name.
        parts: New parts; at least one.

    Returns:
        A CQL text that has the same meaning as ``cql`` except for the new parts.

    Raises:
        InvalidInput: A new part is invalid, or the query would also change in other parts. The error's
            ``path`` names the new part.
    """
    before = bind(cql, streams)
    if before.left is not None:
        raise NotRewritable(
            "parts of a join of more than two streams cannot be changed one by one yet",
            hint="Send the whole query as cql.",
        )
    statement = parse(cql)
    scope = Scope(statement, streams)
    meaning = join_meaning(statement, scope)
    if meaning.kind != statement.form.kind and NEVER in (before.a.filter, before.b.filter):
        raise NotRewritable("the query has no results", hint="Send the whole query as cql.")
    windows = {side.side: _bound_side(before, side.side).window_us for side in scope.written}
    asked = _new_windows(scope, parts)
    windows |= asked
    clocks: dict[SideName, Clock] = {
        s.side: "time" if s.side in asked else _bound_side(before, s.side).clock for s in scope.written
    }
    keys: dict[SideName, list[str]] = {"a": [a for a, _ in before.key], "b": [b for _, b in before.key]}
    filters = _new_filters(scope, parts)
    with error_path("select"):
        select = select_list_text(cql) if parts.select is None else _select_list(parts.select)
    sources = tuple(
        f"{_name(side.source.stream)} {_bracket(windows[side.side], clocks[side.side], keys[side.side])}"
        f" AS {_name(side.alias)}"
        for side in scope.written
    )
    given = _pieces(scope, statement, meaning)
    form = _joined if meaning.kind == "inner" else _asked
    text = f"SELECT {select} FROM {form(scope, statement, meaning, sources, given, filters)}"
    text = f"{text} {group_text(cql)}".rstrip()
    for side in scope.written:
        if clocks[side.side] == "time" and side.stream.retain_us is not None:
            windows[side.side] = min(windows[side.side], side.stream.retain_us)
    _check(before, bind(text, streams), windows, filters, selected=parts.select is not None)
    return text


def _joined(
    scope: Scope,
    statement: Statement,
    meaning: JoinMeaning,
    sources: Sequence[str],
    given: _Pieces,
    filters: Mapping[SideName, list[exp.Expr]],
) -> str:
    """Return FROM and WHERE of an inner join."""
    conditions = list(given.on)
    for side in scope.written:
        conditions += filters.get(side.side, given.filters[side.side])
    using = _using(statement)
    joined = f" JOIN {sources[1]} {using}" if using else f", {sources[1]}"
    return f"{sources[0]}{joined}{_clause(' WHERE ', conditions)}"


def _asked(
    scope: Scope,
    statement: Statement,
    meaning: JoinMeaning,
    sources: Sequence[str],
    given: _Pieces,
    filters: Mapping[SideName, list[exp.Expr]],
) -> str:
    """Return FROM and WHERE of an outer, semi or anti join.

    The filter of a preserved side is written in WHERE, and the filter of the other side in ON. In a semi
    join, the old text may also have the filter of the preserved side in ON.
    """
    on, where = list(given.on), list(given.where)
    for side, conditions in filters.items():
        if side not in meaning.preserved or meaning.kind == "semi":
            on = [part for part in on if compile_condition(part, scope).sides != {side}]
        if side in meaning.preserved:
            where = [part for part in where if compile_condition(part, scope).sides != {side}]
            where += conditions
        else:
            on += conditions
    if statement.form.asked_by != "JOIN":
        word = "NOT EXISTS" if meaning.kind == "anti" else "EXISTS"
        exists = f"{word} (SELECT 1 FROM {sources[1]}{_clause(' WHERE ', on)})"
        return f"{sources[0]} WHERE {exists}{_clause(' AND ', where)}"
    kept = tuple(position for position, side in enumerate(scope.written) if side.side in meaning.preserved)
    side_word = {(0,): "LEFT", (1,): "RIGHT", (0, 1): "FULL"}[kept]
    kind_word = {"semi": " SEMI", "anti": " ANTI"}.get(statement.form.kind, "")
    matches = _using(statement) or f"ON {' AND '.join(_written(part) for part in on)}"
    if statement.using and on:
        raise NotRewritable(
            "this filter cannot be added to a join with USING", hint="Send the whole query as cql, with ON."
        )
    return f"{sources[0]} {side_word}{kind_word} JOIN {sources[1]} {matches}{_clause(' WHERE ', where)}"


def _using(statement: Statement) -> str:
    return f"USING ({', '.join(_name(name.name) for name in statement.using)})" if statement.using else ""


def _clause(word: str, conditions: Sequence[exp.Expr]) -> str:
    return word + " AND ".join(_written(condition) for condition in conditions) if conditions else ""


def _pieces(scope: Scope, statement: Statement, meaning: JoinMeaning) -> _Pieces:
    """Sort the conditions of the old text as ``bind.bind`` does."""
    where = [] if meaning.kind == "inner" else pieces(statement.where, scope)
    found = _Pieces({"a": [], "b": []}, [], where)
    has_key = bool(statement.using) or any(
        key_columns(piece, scope) is not None and time_bounds(piece, scope) is None for piece in meaning.on
    )
    for piece in meaning.on:
        bounds, is_key = time_bounds(piece, scope), key_columns(piece, scope) is not None
        if bounds is not None and (has_key or not is_key):
            if (bounds.low_us or 0) > 0 or (bounds.high_us or 0) < 0:
                found.on.append(piece)
            continue
        sides = compile_condition(piece, scope).sides
        if len(sides) == 1 and meaning.kind == "inner":
            (side,) = sides
            found.filters[side].append(piece)
        else:
            found.on.append(piece)
    return found


def _new_windows(scope: Scope, parts: QueryParts) -> dict[SideName, int]:
    """Return the length of each new window in µs, by side."""
    windows: dict[SideName, int] = {}
    for name, text in parts.windows.items():
        with error_path("window") if name == BOTH else error_path("window", name):
            length = _length(text)
            for side in scope.written if name == BOTH else (_side_named(scope, name),):
                if side.side in windows:
                    raise InvalidWindow(f'stream "{side.stream.name}" gets two windows', hint="Keep one.")
                windows[side.side] = length
    return windows


def _length(text: str) -> int:
    """Return the length of a window in µs."""
    words = text.strip().upper().removeprefix("RANGE ").strip()
    if words == "NOW":
        return 1
    if words == "UNBOUNDED":
        return UNBOUNDED_US
    length = duration([text.strip()[-len(words) :] if words else ""])
    if isinstance(length, str) or length.months or not 0 < length.us < UNBOUNDED_US:
        detail = f"{length[:1].upper()}{length[1:]}." if isinstance(length, str) else None
        raise InvalidWindow(
            f'"{text}" is not the length of a window',
            detail=detail,
            hint='Write a number and a unit, such as "30s" or "5 MINUTES", or "NOW" or "UNBOUNDED".',
        )
    return length.us


def _new_filters(scope: Scope, parts: QueryParts) -> dict[SideName, list[exp.Expr]]:
    """Return the conditions of each new filter, by side; no conditions if the filter is removed."""
    filters: dict[SideName, list[exp.Expr]] = {}
    for name, text in parts.filters.items():
        with error_path("filter", name):
            side = _side_named(scope, name)
            if side.side in filters:
                raise NotRewritable(f'stream "{side.stream.name}" gets two filters', hint="Keep one.")
            filters[side.side] = [] if text is None else _filter(text, scope, side)
    return filters


@located
def _filter(text: str, scope: Scope, side: SideScope) -> list[exp.Expr]:
    """Return the conditions of one filter, with the alias before every column."""
    condition = parse_condition(text)
    for column in condition.find_all(exp.Column):
        table = column.args.get("table")
        known = {side.alias.lower(), side.stream.name.lower()}
        if table is not None and table.name.lower() not in known:
            raise NotRewritable(
                f'the filter of "{side.alias}" names "{table.name}"',
                hint="A filter is a condition on one stream alone. Send the whole query as cql.",
                at=column,
            )
        if side.stream.column(column.name) is None and not isinstance(column.this, exp.Star):
            raise UnknownColumn(
                f'column "{column.name}" does not exist in stream "{side.stream.name}"',
                hint=nearest_or_known(column.name, [c.name for c in side.stream.columns], "column"),
                at=column,
            )
        alias = exp.to_identifier(side.alias, quoted=_name(side.alias) != side.alias)
        if table is not None:
            alias.meta.update(table.meta)  # errors locate the alias at this place in the text
        column.set("table", alias)
    parts = pieces([condition], scope)
    for piece in parts:
        if compile_condition(piece, scope).sides != {side.side}:
            raise NotRewritable(
                f'a condition in the filter of "{side.alias}" names no column of the stream',
                hint="Leave it out, or send null to remove the filter.",
            )
    return parts


def _side_named(scope: Scope, name: str) -> SideScope:
    """Return the side that a name denotes: an alias, or the name of a stream that only one side reads."""
    for by in ("alias", "stream"):
        found = [
            side
            for side in scope.written
            if (side.alias if by == "alias" else side.stream.name).lower() == name.lower()
        ]
        if len(found) == 1:
            return found[0]
    known = [side.alias for side in scope.written]
    raise UnknownStream(f'the query has no stream "{name}"', hint=nearest_or_known(name, known, "name"))


def _select_list(select: str | tuple[str, ...]) -> str:
    """Return the text of a select list; raise CqlSyntaxError if it contains anything else, such as FROM."""
    items = [select] if isinstance(select, str) else list(select)
    texts = []
    for i, item in enumerate(items):
        tokens = tokens_of(item)
        depth = 0
        for token in tokens:
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            if depth < 0 or (depth == 0 and token.token_type in _ENDS):
                raise CqlSyntaxError(
                    f'unexpected "{token.text}" in the select list', hint="Write columns, such as A.k, B.ts."
                )
        if not tokens or depth:
            where = f" {i + 1}" if len(items) > 1 else ""
            raise CqlSyntaxError(
                f"the select list{where} ends too early", hint="Write columns, such as A.k, B.ts."
            )
        texts.append(item[tokens[0].start : tokens[-1].end + 1])
    if not texts:
        raise CqlSyntaxError("the select list is empty", hint="Write columns, such as A.k, B.ts.")
    return ", ".join(texts)


def _check(
    before: Query,
    after: Query,
    windows: Mapping[SideName, int],
    filters: Mapping[SideName, object],
    *,
    selected: bool,
) -> None:
    """Refuse a new text whose meaning differs from the old text in more than the requested parts."""
    for name in ("a", "b"):
        side: SideName = "a" if name == "a" else "b"
        old, new = _bound_side(before, side), _bound_side(after, side)
        if (new.stream_id, new.alias) != (old.stream_id, old.alias):
            raise NotRewritable("the new text would read other streams", hint="Send the whole query as cql.")
        if new.window_us != windows[side]:
            raise NotRewritable(
                f'the window of "{new.alias}" cannot be replaced alone',
                detail="Conditions on the event times of both streams narrow it.",
                hint="Send the whole query as cql.",
                path=("window",),
            )
    never = NEVER in (before.a.filter, before.b.filter, after.a.filter, after.b.filter)
    same = (before.key, before.kind, before.preserved) == (after.key, after.kind, after.preserved)
    same = same and (never or before.residual == after.residual) and _groups(before) == _groups(after)
    for side, old, new in (("a", before.a, after.a), ("b", before.b, after.b)):
        same = same and (never or side in filters or old.filter == new.filter)
    if not same or not (selected or before.outputs == after.outputs):
        raise NotRewritable(
            "the query cannot be rewritten part by part",
            detail="The change would alter the meaning of other parts of the query.",
            hint="Send the whole query as cql.",
        )


def _groups(query: Query) -> tuple[int | None, str | None] | None:
    """Return the interval and HAVING of a query's groups, which do not depend on the select list."""
    return None if query.grouping is None else (query.grouping.tumble_us, query.grouping.having)


def _bound_side(query: Query, side: SideName) -> Side:
    return query.a if side == "a" else query.b


def _bracket(window_us: int, clock: Clock = "time", key: Sequence[str] = ()) -> str:
    """Return a window in CQL syntax.

    >>> _bracket(90_000_000), _bracket(1), _bracket(1_500_000)
    ('[RANGE 90 SECONDS]', '[NOW]', '[RANGE 1500 MILLISECONDS]')
    >>> _bracket(5, "rows"), _bracket(1, "key rows", ["k"])
    ('[ROWS 5]', '[PARTITION BY k ROWS 1]')
    """
    if clock == "order":
        return ""
    if clock != "time":
        by_key = f"PARTITION BY {', '.join(map(_name, key))} " if clock == "key rows" else ""
        return f"[{by_key}ROWS {window_us}]"
    if window_us == 1:
        return "[NOW]"
    if window_us >= UNBOUNDED_US:
        return "[RANGE UNBOUNDED]"
    unit, size = next((unit, size) for unit, size in _UNITS if window_us % size == 0)
    count = window_us // size
    return f"[RANGE {count} {unit}{'S' if count != 1 else ''}]"


def _name(name: str) -> str:
    """Return a name in CQL syntax, quoted if it is a keyword."""
    tokens = tokens_of(name)
    plain = len(tokens) == 1 and tokens[0].token_type == TokenType.VAR and tokens[0].text == name
    return name if plain else quoted(name)


def _written(condition: exp.Expr) -> str:
    """Return a condition as text, with parentheses around every operand that may need them."""
    copy = condition.copy()
    for node in reversed(list(copy.walk(bfs=False))):
        if node is not copy and _needs_parentheses(node):
            parentheses = exp.Paren()
            node.replace(parentheses)
            parentheses.set("this", node)
    text = str(copy.sql(dialect=Cql))
    return f"({text})" if isinstance(copy, exp.Or) else text


def _needs_parentheses(node: exp.Expr) -> bool:
    if isinstance(node, exp.Paren) or isinstance(node.parent, exp.Paren | exp.Escape):
        return False
    if isinstance(node, exp.Neg):
        return not isinstance(node.this, exp.Literal)
    return isinstance(node, exp.Binary | exp.Unary | exp.Between | exp.In)
