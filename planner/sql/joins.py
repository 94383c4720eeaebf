"""Forms of a join, written with JOIN, EXISTS or IN: results are pairs, or rows with or without a partner.

    A a LEFT JOIN B b ON ...          every pair, and every row of A without a partner
    A a LEFT SEMI JOIN B b ON ...     the rows of A that have a partner; EXISTS and IN mean the same
    A a LEFT ANTI JOIN B b ON ...     the rows of A that have no partner; NOT EXISTS means the same

EXISTS and IN are split into the same parts as a JOIN: the stream inside is the second stream, and the WHERE
inside is its ON. ``VISIBLE`` in a column's ``meta`` lists the streams to which the column may belong: in
the select list and the WHERE of a semi or anti join only the preserved stream, inside EXISTS and IN first the
stream of the subquery.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import Token, exp

from catalog.values.query import JoinKind
from planner.errors import UnsupportedCql
from planner.sql.dialect.cql import ASKS
from planner.sql.dialect.normalize import conjuncts

#: Key in the ``meta`` of a column name. The value has the positions of the streams to which the name may
#: belong; the name belongs to the first of these streams that has such a column.
VISIBLE = "visible"

#: Positions of the preserved streams, by the words before JOIN.
_PRESERVED: dict[tuple[str, str], tuple[JoinKind, tuple[int, ...]]] = {
    ("", ""): ("inner", ()),
    ("", "INNER"): ("inner", ()),
    ("", "CROSS"): ("inner", ()),
    **{
        (side, kind): ("outer", kept)
        for side, kept in (("LEFT", (0,)), ("RIGHT", (1,)), ("FULL", (0, 1)))
        for kind in ("", "OUTER")
    },
    ("", "SEMI"): ("semi", (0,)),
    ("LEFT", "SEMI"): ("semi", (0,)),
    ("RIGHT", "SEMI"): ("semi", (1,)),
    ("", "ANTI"): ("anti", (0,)),
    ("LEFT", "ANTI"): ("anti", (0,)),
    ("RIGHT", "ANTI"): ("anti", (1,)),
}
_KNOWN_OF_JOIN = frozenset({"this", "on", "using", "method", "side", "kind"})
_UNITS_FIRST = frozenset({"DATE_TRUNC", "DATE_DIFF", "DATEDIFF"})


@dataclass(frozen=True, slots=True)
class JoinForm:
    """Form of the join between the two streams of a query.

    Attributes:
        kind: Kind of join.
        preserved: Positions of the streams (0 or 1, as written) whose rows are checked for matches.
        asked_by: ``JOIN``, ``EXISTS`` or ``IN``.
        cross: True for a CROSS JOIN, which pairs all rows.
    """

    kind: JoinKind = "inner"
    preserved: tuple[int, ...] = ()
    asked_by: str = "JOIN"
    cross: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """EXISTS or IN, or NOT EXISTS, as written in a WHERE.

    Attributes:
        form: Form of the join that it requests.
        select: The SELECT inside.
        item: Expression before IN, or None for EXISTS.
        others: The other conditions of the WHERE.
    """

    form: JoinForm
    select: exp.Select
    item: exp.Expr | None
    others: tuple[exp.Expr, ...]


def join_form(join: exp.Join, tokens: Sequence[Token], start: int) -> JoinForm:
    """Return the form of a JOIN.

    Args:
        join: The join.
        tokens: Tokens of the text.
        start: Offset of the stream after JOIN.

    Raises:
        UnsupportedCql: CQL does not have this join, or the join has no condition.
    """
    method, side, kind = (str(join.args.get(name) or "") for name in ("method", "side", "kind"))
    named = " ".join(word for word in (method, side, kind) if word)
    word = named.split()[0] if named else "JOIN"
    before = [token for token in tokens if token.start < start]
    token = next((t for t in reversed(before) if t.text.upper() == word), before[0])
    found = _PRESERVED.get((side, kind)) if not method else None
    if found is None:
        hint = (
            "Name the key: JOIN B ON A.key = B.key."
            if method == "NATURAL"
            else "Write [INNER] JOIN, LEFT, RIGHT or FULL [OUTER] JOIN, LEFT SEMI JOIN or LEFT ANTI JOIN, "
            "with its condition in ON."
        )
        raise UnsupportedCql(f"{named} JOIN is not supported", hint=hint, at=token)
    for name, value in join.args.items():
        if value and name not in _KNOWN_OF_JOIN:
            raise UnsupportedCql(
                f"{name.upper()} of a JOIN is not supported",
                hint="Write the condition in ON or WHERE.",
                at=before[-1],
            )
    form = JoinForm(*found, cross=kind == "CROSS")
    if form.kind != "inner" and join.args.get("on") is None and not join.args.get("using"):
        raise UnsupportedCql(
            f"{named} JOIN without a condition is not supported",
            hint=f"Write {named} JOIN ... ON A.key = B.key: ON defines which rows are partners, and WHERE "
            "is applied after the join.",
            at=token,
        )
    return form


def question(where: exp.Expr, alias: str) -> Question | None:
    """Return the EXISTS or IN of a WHERE, or None if it has neither.

    Args:
        where: Condition of the WHERE.
        alias: Name of the stream in FROM.

    Raises:
        UnsupportedCql: There are several subqueries, or NOT IN, or a subquery that AND does not connect to
            the other conditions.
    """
    if where.find(exp.Select) is None:
        return None
    others: list[exp.Expr] = []
    found: list[tuple[exp.Expr, bool]] = []
    for part in conjuncts([where.copy()]):
        asked = part.this.unnest() if isinstance(part, exp.Not) else part.unnest()
        if _asks(asked):
            found.append((asked, isinstance(part, exp.Not)))
        else:
            others.append(part)
    refuse_subqueries(others)
    if len(found) > 1:
        raise UnsupportedCql(
            "a second subquery is not supported",
            hint=f"Register a separate query for each subquery: {ASKS}.",
            at=found[1][0],
        )
    ((asked, negated),) = found
    if isinstance(asked, exp.Exists):
        form = JoinForm("anti" if negated else "semi", (0,), "EXISTS")
        return Question(form, asked.this, None, tuple(others))
    if negated:
        inner = asked.args["query"].this
        own = inner.args["from_"].this.alias_or_name if inner.args.get("from_") else "B"
        item, key = (
            _under(name, part.unalias())
            for name, part in ((alias, asked.this), (own, next(iter(inner.expressions), exp.column("key"))))
        )
        raise UnsupportedCql(
            "NOT IN over a subquery is not supported",
            detail="If the subquery returns a NULL, NOT IN is true for no row.",
            hint=f"Write NOT EXISTS (SELECT 1 FROM ... WHERE {item} = {key}): a comparison with NULL "
            "matches nothing.",
            at=asked,
        )
    return Question(JoinForm("semi", (0,), "IN"), asked.args["query"].this, asked.this, tuple(others))


def _under(alias: str, node: exp.Expr) -> str:
    """Return an expression as text; a column without a qualifier gets the alias."""
    plain = isinstance(node, exp.Column) and not node.args.get("table")
    return f"{alias}.{node.sql()}" if plain else node.sql()


def _asks(node: exp.Expr) -> bool:
    return isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)


def refuse_subqueries(nodes: Iterable[exp.Expr]) -> None:
    """Raise UnsupportedCql if any node contains a SELECT."""
    for node in nodes:
        inner = node.find(exp.Select)
        if inner is not None:
            raise UnsupportedCql(
                "a subquery here is not supported",
                hint=f"Write one EXISTS or IN in WHERE, connected to the other conditions by AND: {ASKS}.",
                at=(inner.meta["start"], inner.meta["end"] + 1),
            )


def memberships(asked: Question, alias: str) -> list[exp.Expr]:
    """Return the equations that ``x IN (SELECT y ...)`` adds to the WHERE inside.

    Args:
        asked: The EXISTS or IN; EXISTS adds no equations.
        alias: Name of the outer stream, the only stream that ``x`` may read.

    Raises:
        UnsupportedCql: ``x`` and ``y`` are lists of different lengths.
    """
    item = asked.item
    if item is None:
        return []
    items = list(item.expressions) if isinstance(item, exp.Tuple) else [item.unnest()]
    for part in items:
        for column in names_in(part):
            if isinstance(column, exp.Column) and not column.args.get("table"):
                column.set("table", exp.to_identifier(alias))
    keys = [key.unalias() for key in asked.select.expressions]
    if len(keys) != len(items) or any(key.is_star for key in keys):
        count = "one column" if len(items) == 1 else f"{len(items)} columns"
        raise UnsupportedCql(
            f"the subquery of this IN must return {count}",
            hint="Write x IN (SELECT key FROM ...), or (x, y) IN (SELECT key1, key2 FROM ...).",
            at=asked.select,
        )
    return [exp.EQ(this=left, expression=right) for left, right in zip(items, keys, strict=True)]


def names_in(node: exp.Expr) -> list[exp.Column | exp.Star]:
    """Return the columns and stars of an expression, without words that are not columns, such as units."""
    units = {id(part.this) for part in node.find_all(exp.Extract)}
    units |= {
        id(part.expressions[0])
        for part in node.find_all(exp.Anonymous)
        if part.name.upper() in _UNITS_FIRST and part.expressions
    }
    found = node.find_all(exp.Column, exp.Star)
    return [name for name in found if isinstance(name, exp.Column | exp.Star) and id(name) not in units]


def show(nodes: Iterable[exp.Expr], positions: tuple[int, ...]) -> None:
    """Record in the ``meta`` of every name the streams to which the name may belong."""
    for node in nodes:
        for name in names_in(node):
            name.meta.setdefault(VISIBLE, positions)


def merged_columns(node: exp.Expr, using: Iterable[str], aliases: Sequence[str], form: JoinForm) -> exp.Expr:
    """Return an expression in which columns of USING without a stream name have SQL's meaning.

    Such a column belongs to the first stream, or in a RIGHT JOIN to the second stream. In a FULL JOIN it has
    the value of the row that exists.
    """
    if form.preserved not in ((1,), (0, 1)):
        return node
    folded = {name.lower() for name in using}
    for name in names_in(node):
        plain = isinstance(name, exp.Column) and not isinstance(name.this, exp.Star)
        if not plain or name.args.get("table") or name.name.lower() not in folded:
            continue
        each = [name.copy() for _ in aliases]
        for column, alias in zip(each, aliases, strict=True):
            column.set("table", exp.to_identifier(alias))
        meant: exp.Expr = each[1]
        if len(form.preserved) == 2:
            meant = exp.Anonymous(this="COALESCE", expressions=each)
        if name is node:
            return meant
        name.replace(meant)
    return node


def merged_output(node: exp.Expr, using: Sequence[str], aliases: Sequence[str], form: JoinForm) -> exp.Expr:
    """Apply ``merged_columns`` to an entry of the select list; a column of USING keeps its name."""
    merged = merged_columns(node, using, aliases, form)
    if isinstance(node, exp.Column) and not isinstance(merged, exp.Column):
        return exp.Alias(this=merged, alias=node.this.copy())
    return merged
