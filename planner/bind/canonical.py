"""Canonical filters: one text for all the ways to write a condition.

``A.v > 10``, ``10 < A.v``, ``A.v > 10 AND TRUE``, ``NOT (A.v <= 10)`` and ``A.v > 10 AND A.v > 5`` are one
filter, which is evaluated once per row and takes one lineage bit (after State-Slice, VLDB 2006, §6.1).

The canonical text is found in three steps. ``normalize`` pushes NOT inwards, and distributes OR over AND with
sqlglot's optimizer. The expression compiler gives every operand one typed text. ``simplify`` then compares
the sets of values for which the parts of the condition are TRUE, and drops redundant parts.

Most of sqlglot's ``simplify`` is not used, because it is not sound here. It turns x + 1 > 3 into x > 2, which
is wrong where x + 1 overflows to NULL. It does not fold literals as DuckDB does (decimals, doubles, integers
that overflow). It replaces ``v > 1 OR v <= 1`` by TRUE, although this condition is NULL if v is NULL. It
merges comparisons of one column regardless of the type in which DuckDB compares them (2^53 and 2^53 + 1 are
equal as doubles but different as integers).

Some equivalent conditions keep different texts. A plan shows constants as they were written, so ``i > 10``
and ``i >= 11`` are two different filters even for integers. Conditions whose normal form is very long are not
normalized.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from catalog.values.stream import Stream
from catalog.wording.wording import nearest_or_known
from planner.errors import AmbiguousColumn, CqlSyntaxError, UnknownColumn, UnknownStream, UnsupportedCql
from planner.expressions.comparisons import conjunction
from planner.expressions.expressions import bare, compile_condition
from planner.expressions.types.typed import Typed
from planner.predicates.conditions import columns_read
from planner.predicates.logic.simplify import simplest
from planner.sql.dialect.locate import located
from planner.sql.dialect.normalize import conjuncts, distributed
from planner.sql.scopes.scope import ResolvedColumn
from planner.sql.statement import parse_condition

#: Canonical texts of a filter that every row passes, and of a filter that no row passes.
ALWAYS, NEVER = "TRUE", "FALSE"


def canonical(parts: Sequence[Typed]) -> Typed:
    """Return the canonical text of conditions that all have to be true.

    Args:
        parts: Compiled conditions.

    Returns:
        A text that is TRUE for exactly the rows for which all conditions are TRUE. For other rows it may be
        NULL where the conditions are FALSE, or FALSE where they are NULL. Without conditions, the text is
        ``ALWAYS``. The columns of the result are only the columns that the simplified text reads.
    """
    if not parts:
        return Typed(ALWAYS, "boolean")
    condition, text = simplest(conjunction(list(parts)).meaning)
    return Typed(text, "boolean", columns_read(condition), form="compound", predicate=condition)


@located
def canonical_filter(predicate: str, streams: Mapping[str, Stream]) -> tuple[int, str]:
    """Return the stream and canonical text of a filter, to look it up among the filters of queries.

    Args:
        predicate: CQL condition on the columns of one stream, qualified by the stream's name: ``A.v < 0.2``.
            The stream's name may be omitted if only one stream has all columns of the condition.
        streams: Registered streams by name.

    Returns:
        The id of the stream, and the text that ``Side.filter`` has in a query with this predicate (``ALWAYS``
        or ``NEVER`` if the result does not depend on the row).

    Raises:
        CqlSyntaxError, UnsupportedCql, TypeMismatch, UnknownFunction: The condition would be refused in a
            query, too.
        UnknownStream, UnknownColumn, AmbiguousColumn: A name is unknown or ambiguous.
        UnsupportedCql: The condition reads no column, or columns of two streams.
    """
    node = parse_condition(predicate)
    names = _StreamNames(node, streams)
    try:
        return names.stream.id, _filter(node, names)
    except RecursionError as error:
        hint = "Write a shorter expression."
        raise CqlSyntaxError("an expression is nested too deeply", hint=hint) from error


def _filter(node: exp.Expr, names: _StreamNames) -> str:
    """Return the canonical text of a condition on one stream."""
    parts: list[Typed] = []
    for part in conjuncts([node]):
        pieces = distributed(part)
        if pieces != [part]:
            compile_condition(part, names)  # Parts that the optimizer drops must be type-checked, too.
        parts += [compile_condition(piece, names, bare) for piece in pieces]
    return canonical(parts).sql


class _StreamNames:
    """Names in a condition on one stream; upper and lower case are equal."""

    def __init__(self, node: exp.Expr, streams: Mapping[str, Stream]) -> None:
        self._streams = {stream.name.lower(): stream for stream in streams.values()}
        columns = [c for c in node.find_all(exp.Column, bfs=False) if not isinstance(c.this, exp.Star)]
        if not columns:
            raise UnsupportedCql(
                "a condition without a column is not supported here",
                hint="Write a condition on one stream, such as A.v < 0.2.",
                at=node,
            )
        self.stream = self._common(columns)

    def _common(self, columns: Sequence[exp.Column]) -> Stream:
        """Return the stream to which all columns of the condition belong."""
        named = {column.args["table"].name.lower(): column for column in columns if column.args.get("table")}
        if len(named) > 1:
            _, second, *_ = named.values()
            raise UnsupportedCql(
                "a condition on two streams is not supported here",
                hint="Write a condition on one stream, such as A.v < 0.2.",
                at=second,
            )
        for name, column in named.items():
            if name not in self._streams:
                written = column.args["table"]
                raise UnknownStream(
                    f'stream "{written.name}" does not exist',
                    hint=nearest_or_known(written.name, [s.name for s in self._streams.values()], "stream"),
                    at=written,
                )
            return self._streams[name]
        having = [s for s in self._streams.values() if all(s.column(c.name) is not None for c in columns)]
        first = columns[0]
        if len(having) > 1:
            raise AmbiguousColumn(
                f'column "{first.name}" is in {len(having)} streams',
                hint=f"Write {having[0].name}.{first.name} or {having[1].name}.{first.name}.",
                at=first,
            )
        if not having:
            known = [column.name for stream in self._streams.values() for column in stream.columns]
            raise UnknownColumn(
                f'no stream has a column "{first.name}"'
                if len(columns) == 1
                else "no stream has all these columns",
                hint=nearest_or_known(first.name, known, "column"),
                at=first,
            )
        return having[0]

    def column(self, node: exp.Column) -> ResolvedColumn:
        """Return the stream's column that a name denotes; raises UnknownColumn if there is none."""
        column = self.stream.column(node.name)
        if column is None or node.args.get("db"):
            raise UnknownColumn(
                f'column "{node.name}" does not exist in stream "{self.stream.name}"',
                hint=nearest_or_known(node.name, [c.name for c in self.stream.columns], "column"),
                at=node,
            )
        return ResolvedColumn("a", column)
