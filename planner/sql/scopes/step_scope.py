"""Names in a join of more than two streams, resolved to the two sides of one of its steps.

FROM A a, B b, C c     step 1   a.k -> a."k"       b.k -> b."k"
step 2   a.k -> a."a.k"     b.k -> a."b.k"     c.k -> b."k"

The streams are joined in the order of FROM, or in another order (``in_order``). Several streams can first be
joined with each other as a group. The group then takes the place of a stream and is side b of its step.

FROM A a, B b, C c, D d     order a, b, (c, d)     step 2   c.k -> b."a.k"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Self

from sqlglot import exp

from catalog.values.query import RANK
from catalog.values.stream import Column, Stream
from planner.errors import CqlSyntaxError
from planner.sql.scopes.scope import ResolvedColumn, Scope, SideName, SideScope, registered
from planner.sql.statement import Statement

#: A column of a stream, by the position of the stream in FROM.
Origin = tuple[int, str]

#: A stream, by its position in FROM, or a group of streams in the order in which they are joined.
Item = int | tuple["Item", ...]


def flat(items: Iterable[Item]) -> tuple[int, ...]:
    """Return the positions of streams in the order in which they are joined.

    >>> flat((0, 2, (1, 3)))
    (0, 2, 1, 3)
    """
    found: list[int] = []
    for item in items:
        found += (item,) if isinstance(item, int) else flat(item)
    return tuple(found)


class StepScope(Scope):
    """Names of a query at one of its steps; streams of later steps are unknown there."""

    def __init__(self, statement: Statement, streams: Mapping[str, Stream], step: int) -> None:
        self.step = step
        found = registered(statement, streams)
        taken: dict[str, str] = {}
        for source in statement.sources:
            if source.alias.lower() in taken:
                raise CqlSyntaxError(
                    f'two streams have the name "{source.alias}"',
                    hint=f"Give each an alias: {source.stream} [...] a, {source.stream} [...] b.",
                    at=source.alias_at,
                )
            taken[source.alias.lower()] = source.alias
        #: Positions in FROM, in the order in which the streams are joined; the first two are single streams.
        self.order: tuple[Item, ...] = tuple(range(len(found)))
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
        """Return the scope of the query at another step of the join."""
        return self._with(step=step)

    def in_order(self, order: tuple[Item, ...]) -> Self:
        """Return the scope of the last step for another join order (positions in FROM)."""
        return self._with(order=order, step=len(order) - 1, written=_with_sides(self.written, order))

    def _with(self, **changed: object) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__ | changed)
        return other

    @property
    def left(self) -> tuple[int, ...]:
        """Positions of the streams joined before this step."""
        return flat(self.order[: self.step])

    @property
    def right(self) -> tuple[int, ...]:
        """Positions of the stream, or of the group of streams, that is joined at this step."""
        return flat(self.order[self.step : self.step + 1])

    @property
    def known(self) -> frozenset[int]:
        """Positions of all streams joined up to this step."""
        return frozenset(flat(self.order[: self.step + 1]))

    @property
    def group(self) -> Self | None:
        """Scope of the last step of the group that is joined at this step, or None if a stream is joined."""
        item = self.order[self.step]
        return None if isinstance(item, int) else self.in_order(item)

    def side_positions(self) -> dict[SideName, tuple[int, ...]]:
        """Return the positions of the streams of each side at this step."""
        if self.step > 1:
            return {"a": self.left, "b": self.right}
        return {self.written[p].side: (p,) for p in (*self.left, *self.right)}

    def position(self, scope: SideScope) -> int:
        """Return the position of a stream in FROM."""
        return next(number for number, each in enumerate(self.written) if each is scope)

    def origin(self, node: exp.Column) -> Origin:
        """Resolve a name to its stream and column."""
        scope, column = self.found(node)
        return self.position(scope), column.name

    def column(self, node: exp.Column) -> ResolvedColumn:
        """Resolve a name to a column of a side of the step; raises the same errors as ``found``."""
        scope, column = self.found(node)
        side, name = self.named((self.position(scope), column.name))
        return ResolvedColumn(side, replace(column, name=name))

    def named(self, origin: Origin) -> tuple[SideName, str]:
        """Return the side and name of a stream's column at this step."""
        position, name = origin
        if self.step == 1:
            return self.written[position].side, name
        if position in self.right:
            group = self.group
            return "b", name if group is None else group.handed_as(origin)
        return "a", self.at(self.step - 1).handed_as(origin)

    def handed_as(self, origin: Origin) -> str:
        """Return the name under which the step passes a column to later steps."""
        side, name = self.named(origin)
        return f"{side}.{name}"

    def type_of(self, origin: Origin) -> str:
        """Return the type of a stream's column, or of the rank of its rows if the name is ``RANK``."""
        position, name = origin
        if name == RANK:
            return "bigint"
        return _column(self.written[position], name).type


class PairScope(Scope):
    """Names of a query that belong to two of its streams, ``a`` and ``b`` in the order of FROM."""

    def __init__(self, names: StepScope, first: int, second: int) -> None:
        self.names = names
        self.positions = (first, second)
        a, b = (names.written[position] for position in self.positions)
        self.a, self.b = replace(a, side="a"), replace(b, side="b")
        self.written = (self.a, self.b)

    def column(self, node: exp.Column) -> ResolvedColumn:
        """Resolve a name to a column of one of the two streams; raises the same errors as ``found``."""
        position, name = self.names.origin(node)
        side: SideName = "a" if position == self.positions[0] else "b"
        return ResolvedColumn(side, _column(self.names.written[position], name))


def side_a(first: int, second: int, ids: Sequence[int]) -> int:
    """Return which of two joined streams is side a: the stream with the smaller id.

    Args:
        first: Position of one stream.
        second: Position of the other stream.
        ids: Ids of all streams.
    """
    return second if ids[second] < ids[first] else first


def _with_sides(written: tuple[SideScope, ...], order: tuple[Item, ...]) -> tuple[SideScope, ...]:
    """Return the streams, each with the side that it has in the first step of ``order``."""
    first, second = flat(order[:2])
    a = side_a(first, second, [this.stream.id for this in written])
    return tuple(replace(this, side="a" if p == a else "b") for p, this in enumerate(written))


def _column(scope: SideScope, name: str) -> Column:
    column = scope.stream.column(name)
    if column is None:
        raise LookupError(f'column "{name}" of stream "{scope.stream.name}" was resolved before')
    return column
