"""Resolution of names in a query to columns of its sides."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from catalog.values.stream import Column, Stream
from catalog.wording.wording import nearest_or_known
from planner.errors import AmbiguousColumn, CqlSyntaxError, UnknownColumn, UnknownStream
from planner.sql.joins import VISIBLE
from planner.sql.statement import Source, Statement

SideName = Literal["a", "b"]

#: Functions that other systems call without parentheses; their value changes from run to run.
_NOT_REPEATABLE = frozenset(
    {"current_timestamp", "current_date", "current_time", "localtime", "localtimestamp", "now"}
)


@dataclass(frozen=True, slots=True)
class SideScope:
    """One stream of the query under its alias.

    Attributes:
        side: Side of the family.
        alias: Name by which the query refers to it.
        stream: The stream.
        source: Entry of the stream in FROM.
    """

    side: SideName
    alias: str
    stream: Stream
    source: Source


@dataclass(frozen=True, slots=True)
class ResolvedColumn:
    """A column of one side."""

    side: SideName
    column: Column


class Scope:
    """Names of one query; upper and lower case are equal, even in quoted names."""

    def __init__(self, statement: Statement, streams: Mapping[str, Stream]) -> None:
        left, right = registered(statement, streams)
        swapped = right.id < left.id
        first, second = statement.sources
        if first.alias.lower() == second.alias.lower():
            raise CqlSyntaxError(
                f'both streams have the name "{second.alias}"',
                hint=f"Give each an alias: {first.stream} [...] a, {second.stream} [...] b.",
                at=second.alias_at,
            )
        self.written: tuple[SideScope, ...] = (
            SideScope("b" if swapped else "a", first.alias, left, first),
            SideScope("a" if swapped else "b", second.alias, right, second),
        )
        self.a, self.b = reversed(self.written) if swapped else self.written
        self.asked_by = statement.form.asked_by
        #: Columns of USING; without a stream name, such a column belongs to the first stream.
        self.merged: Collection[str] = frozenset(name.name.lower() for name in statement.using)

    def visible(self, node: exp.Expr) -> tuple[SideScope, ...]:
        """Return the sides to whose columns a name may refer."""
        positions = node.meta.get(VISIBLE, range(len(self.written)))
        return tuple(self.written[position] for position in positions)

    def side(self, name: SideName) -> SideScope:
        """Return a side."""
        return self.a if name == "a" else self.b

    def qualifier(self, node: exp.Column) -> SideScope:
        """Return the side to which ``alias.`` before a column refers."""
        table = node.args["table"]
        visible = self.visible(node)
        for scope in visible:
            if scope.alias.lower() == table.name.lower():
                return scope
        if any(scope.alias.lower() == table.name.lower() for scope in self.written):
            raise UnknownColumn(
                f'"{table.name}" cannot be read here',
                detail=f'Results are rows of "{visible[0].alias}" alone.',
                hint=f"Write columns of {visible[0].alias}, and conditions on {table.name} "
                + ("inside the subquery." if self.asked_by != "JOIN" else "in ON."),
                at=table,
            )
        renamed = [s.alias for s in self.written if s.stream.name.lower() == table.name.lower()]
        raise UnknownColumn(
            f'FROM does not define the name "{table.name}"',
            hint=f'Stream "{table.name}" has the alias "{renamed[0]}" here.'
            if renamed
            else nearest_or_known(table.name, [s.alias for s in self.written], "name"),
            at=table,
        )

    def column(self, node: exp.Column) -> ResolvedColumn:
        """Resolve a name to its column; raises the same errors as ``found``."""
        scope, column = self.found(node)
        return ResolvedColumn(scope.side, column)

    def found(self, node: exp.Column) -> tuple[SideScope, Column]:
        """Resolve a name to its stream and column.

        Raises:
            UnknownColumn: No stream has the column, or the name before the dot is unknown.
            AmbiguousColumn: Several streams have the column.
        """
        if node.args.get("db"):
            raise UnknownColumn(
                f'"{node.sql()}" has more than two parts', hint="Write alias.column.", at=node
            )
        if node.args.get("table"):
            scope = self.qualifier(node)
            return scope, self._of(scope, node)
        found = [(s, c) for s in self.visible(node) if (c := s.stream.column(node.name)) is not None]
        in_order = VISIBLE in node.meta or node.name.lower() in self.merged
        if len(found) > 1 and not in_order:
            names = [f"{scope.alias}.{column.name}" for scope, column in found]
            raise AmbiguousColumn(
                f'column "{node.name}" is in {"both" if len(self.written) == 2 else "several"} streams',
                hint=f"Write {' or '.join(names)}.",
                at=node,
            )
        if found:
            return found[0]
        if node.name.lower() in _NOT_REPEATABLE:
            raise UnknownColumn(
                f"{node.name.upper()} is not supported",
                detail="A query must give the same results on every run over the same rows.",
                hint="Compare with the event time of the other stream, or with a timestamp literal.",
                at=node,
            )
        visible = self.visible(node)
        streams = " or ".join(dict.fromkeys(f'"{s.stream.name}"' for s in visible))
        known = [c.name for s in visible for c in s.stream.columns]
        hint = nearest_or_known(node.name, known, "column")
        if node.this.args.get("quoted"):
            hint = f"{hint} A text is written '{node.name}'."
        raise UnknownColumn(f'column "{node.name}" does not exist in stream {streams}', hint=hint, at=node)

    def _of(self, scope: SideScope, node: exp.Column) -> Column:
        column = scope.stream.column(node.name)
        if column is None:
            raise UnknownColumn(
                f'column "{node.name}" does not exist in stream "{scope.stream.name}"',
                hint=nearest_or_known(node.name, [c.name for c in scope.stream.columns], "column"),
                at=node.this,
            )
        return column


def registered(statement: Statement, streams: Mapping[str, Stream]) -> tuple[Stream, ...]:
    """Return the streams that a query names, in the order written.

    Raises:
        UnknownStream: A named stream is not registered.
    """
    by_name = {stream.name.lower(): stream for stream in streams.values()}
    found = []
    for source in statement.sources:
        stream = by_name.get(source.stream.lower())
        if stream is None:
            raise UnknownStream(
                f'stream "{source.stream}" does not exist',
                hint=nearest_or_known(source.stream, [s.name for s in by_name.values()], "stream"),
                at=source.at,
            )
        found.append(stream)
    return tuple(found)
