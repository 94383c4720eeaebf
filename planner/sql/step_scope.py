"""Names of a join of more than two streams, as the two sides of one of its steps.

FROM A a, B b, C c     step 1   a.k -> a."k"       b.k -> b."k"
step 2   a.k -> a."a.k"     b.k -> a."b.k"     c.k -> b."k"

The streams are joined in the order of FROM, or in another one (``in_order``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from sqlglot import exp

from catalog.values.query import RANK
from catalog.values.stream import Column, Stream
from planner.errors import CqlSyntaxError
from planner.sql.scope import ResolvedColumn, Scope, SideName, SideScope, registered
from planner.sql.statement import Statement

#: A column of a stream, by the position of the stream in FROM.
Origin = tuple[int, str]


class StepScope(Scope):
    """Names of a query at one of its steps; streams of later steps are unknown there."""

    def __init__(self, statement: Statement, streams: Mapping[str, Stream], step: int) -> None:
        self.text = statement.text
        self.step = step
        found = registered(statement, streams)
        taken: dict[str, str] = {}
        for source in statement.sources:
            if source.alias.lower() in taken:
                raise CqlSyntaxError(
                    f'two streams go by the name "{source.alias}"',
                    hint=f"Give each an alias: {source.stream} [...] a, {source.stream} [...] b.",
                    location=source.alias_location,
                )
            taken[source.alias.lower()] = source.alias
        #: Positions in FROM, in the order in which the streams are joined.
        self.order = tuple(range(len(found)))
        self.written = _with_sides(
            tuple(
                SideScope("b", source.alias, stream, source)
                for source, stream in zip(statement.sources, found, strict=True)
            ),
            self.order,
        )
        self.asked_by = statement.form.asked_by
        self.merged = frozenset(name.name.lower() for name in statement.using)

    def at(self, step: int) -> Self:
        """Return the same names at another step."""
        return self._with(step=step)

    def in_order(self, order: tuple[int, ...]) -> Self:
        """Return the same names for another order of joining, given as positions in FROM."""
        return self._with(order=order, written=_with_sides(self.written, order))

    def _with(self, **changed: object) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__ | changed)
        return other

    @property
    def left(self) -> tuple[int, ...]:
        """Positions of the streams joined before this step."""
        return self.order[: self.step]

    @property
    def right(self) -> int:
        """Position of the stream that joins at this step."""
        return self.order[self.step]

    def position(self, scope: SideScope) -> int:
        """Return the position of a stream in FROM."""
        return next(number for number, each in enumerate(self.written) if each is scope)

    def origin(self, node: exp.Column) -> Origin:
        """Resolve a name to its stream and column."""
        scope, column = self.found(node)
        return self.position(scope), column.name

    def column(self, node: exp.Column) -> ResolvedColumn:
        """Resolve a name to a column of a side of the step; raises as ``found``."""
        scope, column = self.found(node)
        side, name = self.named((self.position(scope), column.name))
        return ResolvedColumn(side, replace(column, name=name))

    def named(self, origin: Origin) -> tuple[SideName, str]:
        """Return the side and name of a stream's column at this step."""
        position, name = origin
        if self.step == 1:
            return self.written[position].side, name
        if position == self.right:
            return "b", name
        return "a", self.at(self.step - 1).handed_as(origin)

    def handed_as(self, origin: Origin) -> str:
        """Return the name under which the step hands on a column."""
        side, name = self.named(origin)
        return f"{side}.{name}"

    def type_of(self, origin: Origin) -> str:
        """Return the type of a column of a stream, or of the ranks of its rows."""
        position, name = origin
        if name == RANK:
            return "bigint"
        return _column(self.written[position], name).type


class PairScope(Scope):
    """Names of a query that belong to two of its streams, ``a`` and ``b`` in the order of FROM."""

    def __init__(self, names: StepScope, first: int, second: int) -> None:
        self.text = names.text
        self.names = names
        self.positions = (first, second)
        a, b = (names.written[position] for position in self.positions)
        self.a, self.b = replace(a, side="a"), replace(b, side="b")
        self.written = (self.a, self.b)

    def column(self, node: exp.Column) -> ResolvedColumn:
        """Resolve a name to a column of one of the two streams; raises as ``found``."""
        position, name = self.names.origin(node)
        side: SideName = "a" if position == self.positions[0] else "b"
        return ResolvedColumn(side, _column(self.names.written[position], name))


def _with_sides(written: tuple[SideScope, ...], order: tuple[int, ...]) -> tuple[SideScope, ...]:
    """Return streams with their sides: in the first step the stream with the smaller id is side a."""
    first, second = (written[position].stream.id for position in order[:2])
    a = order[1] if second < first else order[0]
    return tuple(replace(this, side="a" if p == a else "b") for p, this in enumerate(written))


def _column(scope: SideScope, name: str) -> Column:
    column = scope.stream.column(name)
    if column is None:
        raise LookupError(f'column "{name}" of stream "{scope.stream.name}" was resolved before')
    return column
