"""Construction of one nested query of two-sided steps from bound conditions (``catalog.values.query``).

If the rows of a side are pairs of an earlier step, they carry the columns that this and later steps use, and
the columns that determine when a pair expires.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from catalog.steps import EXPIRES, TIME, exchanged_id, intermediate_id, intermediate_name
from catalog.values.query import OLDEST, RANK, Clock, Output, Query, Side
from planner.bind.canonical import ALWAYS, NEVER
from planner.bind.keys.distances import Distances
from planner.bind.keys.step_keys import StepKey
from planner.expressions.expressions import qualified
from planner.expressions.types.column_types import key_type
from planner.expressions.types.typed import Typed
from planner.sql.dialect.cql import Window
from planner.sql.scopes.scope import SideName
from planner.sql.scopes.step_scope import Origin, StepScope

_SIDES: tuple[SideName, SideName] = ("a", "b")


@dataclass(frozen=True, slots=True)
class BoundStep:
    """Compiled conditions of one step.

    Attributes:
        filters: Filter of each side that is a stream; ``catalog.steps.steps`` adds filters of intermediates.
        residual: Condition on a row of side a and a row of side b.
        read: Columns that the residual and, in the last step, the results read.
    """

    filters: Mapping[SideName, Typed]
    residual: Typed
    read: frozenset[Origin]


@dataclass(frozen=True, slots=True)
class BoundSteps:
    """Conditions, keys and windows of all steps of a query.

    Attributes:
        bound: Conditions of each step, by the set of streams that the step has joined.
        keys: Key of each step, by the set of streams that the step has joined.
        distances: Bounds on the distances of event times, or in an ordered join, of ordering columns.
        counted: Windows of rows, by the position of their stream in FROM.
        clock: Clock of all windows that are not windows of rows.
        never: Whether the conditions exclude every result.
        again: Sets of streams whose combinations are not stored, but recomputed when one more stream is
            joined.
    """

    bound: Mapping[frozenset[int], BoundStep]
    keys: Mapping[frozenset[int], StepKey]
    distances: Distances
    counted: Mapping[int, Window]
    clock: Clock
    never: bool
    again: Collection[frozenset[int]]

    def query(
        self,
        scope: StepScope,
        outputs: tuple[Output, ...] | None = None,
        after: frozenset[Origin] = frozenset(),
        *,
        oldest: bool = False,
    ) -> Query:
        """Return the last step of a join as a query, which contains the earlier steps as its sides.

        Args:
            scope: Names at the last step.
            outputs: Result columns, or None if the pairs of the last step go to another step.
            after: Columns that steps after the last step of ``scope`` use.
            oldest: Whether those steps use the oldest event time of a pair.
        """
        last = len(scope.order) - 1
        query: Query | None = None
        for step in range(1, last + 1):
            here = scope.at(step)
            following = [scope.at(each) for each in range(step + 1, last + 1)]
            later = after.union(*map(self._used, following))
            oldest_later = oldest or any(self._alike(each, "a") is not None for each in following)
            right = None
            if here.group is not None:
                oldest_right = oldest_later or self._alike(here, "b") is not None
                right = self.query(here.group, None, later | self._used(here), oldest=oldest_right)
            handed = {origin for origin in later if origin[0] in here.known}
            results = outputs if step == last else None
            query = self._joined(here, query, right, handed, results, oldest=oldest_later)
            query = replace(query, rests=frozenset(here.left) not in self.again)
        assert query is not None, "there are two streams at least"
        return query

    def _used(self, scope: StepScope) -> frozenset[Origin]:
        """Return the columns that a step reads from the rows of its sides."""
        read, key = self.bound[scope.known].read, self.keys[scope.known]
        return read.union(self._expiring(scope), *key.parts)

    def _joined(
        self,
        scope: StepScope,
        left: Query | None,
        right: Query | None,
        handed: set[Origin],
        outputs: tuple[Output, ...] | None,
        *,
        oldest: bool,
    ) -> Query:
        """Return one step as a query; the steps ``left`` and ``right`` make the rows of its sides."""
        step, key = self.bound[scope.known], self.keys[scope.known]
        carried = set(step.read) if outputs is not None else step.read | handed
        positions = scope.side_positions()
        window_a, window_b = self.distances.windows_us(positions["a"], positions["b"])
        pairs, types = [], []
        for owner, joined in key.parts:
            common = key_type(scope.type_of(owner), scope.type_of(joined))
            assert common is not None, "types were checked"
            pairs.append((scope.named(owner)[1], scope.named(joined)[1]))
            types.append(common)
        sides: dict[SideName, Side] = {}
        windows_us: dict[SideName, int] = {"a": window_a, "b": window_b}
        made_by: dict[SideName, Query | None] = {"a": left, "b": right}
        for side, window_us in windows_us.items():
            filter_ = Typed(NEVER, "boolean") if self.never else step.filters[side]
            maker = made_by[side]
            # A side that is a stream has no column for the ranks of its rows.
            needed = {
                scope.named(o)[1]
                for o in carried
                if o[0] in positions[side] and (maker is not None or o[1] != RANK)
            }
            if self.clock == "order":
                single = scope.written[positions[side][0]].stream.event_time
                needed.add(single if maker is None else TIME)
            rows = None if maker is not None else self.counted.get(positions[side][0])
            length = window_us if rows is None else rows.length_us
            if maker is None:
                made = _side(scope, positions[side][0], length, filter_, needed)
            else:
                exchanged = side in key.exchanged
                made = _made_side(scope, positions[side], length, needed, maker, exchanged=exchanged)
                if self.clock == "time":
                    made = self._expires(scope, side, made, oldest=oldest)
            sides[side] = replace(made, clock=self.clock if rows is None else rows.clock)
        return Query(
            id=0,
            name="",
            cql="",
            a=sides["a"],
            b=sides["b"],
            key=tuple(pairs),
            key_types=tuple(types),
            residual=step.residual.sql if step.residual.sql not in (ALWAYS, NEVER) else None,
            outputs=_handed(scope, handed) if outputs is None else outputs,
            left=left,
            hands_on=outputs is None,
            right=right,
        )

    def _expires(self, scope: StepScope, name: SideName, side: Side, *, oldest: bool) -> Side:
        """Return a side whose rows are pairs, with the columns and bounds by which these pairs expire.

        Args:
            scope: Names of the step.
            name: Name of the side.
            side: The side without these columns and bounds.
            oldest: Whether later steps use the oldest event time of a pair.
        """
        own, other = _own_and_other(scope, name)
        ranks = {scope.named((i, RANK))[1]: self.counted[i].length_us - 1 for i in own if i in self.counted}
        alike_us = self.distances.alike(own, other)
        columns = set(side.columns)
        if oldest or alike_us is not None:
            columns.add(OLDEST)
        if alike_us is not None:
            expires: tuple[tuple[str, int], ...] = ((OLDEST, alike_us),)
        else:
            ahead = self.distances.ahead(own, other)
            expires = tuple(sorted((scope.named(time_of(scope, i))[1], us) for i, us in ahead.items()))
            columns |= {column for column, _ in expires}
            if not ranks and self.counted.keys().isdisjoint(other):
                columns.add(EXPIRES)
        columns |= ranks.keys()
        expires = tuple(sorted([*expires, *ranks.items()]))
        return replace(side, columns=tuple(sorted(columns)), expires=expires)

    def _expiring(self, scope: StepScope) -> frozenset[Origin]:
        """Return the event times and ranks that determine when the pairs on the sides of a step expire."""
        if self.clock == "order":
            return frozenset()
        found: set[Origin] = set()
        for name in _SIDES:
            own, other = _own_and_other(scope, name)
            if len(own) > 1:
                found |= {(i, RANK) for i in own if i in self.counted}
                if self._alike(scope, name) is None:
                    found |= {time_of(scope, i) for i in self.distances.ahead(own, other)}
        return frozenset(found)

    def _alike(self, scope: StepScope, name: SideName) -> int | None:
        """Return for how many µs after its oldest event time a pair is needed, or None if windows differ."""
        return None if self.clock == "order" else self.distances.alike(*_own_and_other(scope, name))


def _own_and_other(scope: StepScope, side: SideName) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the positions in FROM of the streams of a side, then of the streams of the other side."""
    positions = scope.side_positions()
    return positions[side], positions["b" if side == "a" else "a"]


def _side(scope: StepScope, position: int, window_us: int, filter_: Typed, columns: set[str]) -> Side:
    """Return a side whose rows are the rows of one stream."""
    this = scope.written[position]
    return Side(
        stream_id=this.stream.id,
        stream=this.stream.name,
        alias=this.alias,
        window_us=window_us,
        filter=filter_.sql if filter_.sql != ALWAYS else None,
        filter_columns=tuple(sorted(column for _, column in filter_.columns)),
        columns=tuple(sorted(columns | {column for _, column in filter_.columns})),
    )


def _made_side(
    scope: StepScope,
    positions: tuple[int, ...],
    window_us: int,
    columns: set[str],
    maker: Query,
    *,
    exchanged: bool,
) -> Side:
    """Return a side whose rows are the pairs of another step."""
    name = intermediate_name(maker.a.stream, maker.b.stream)
    made = intermediate_id(maker.a.stream_id, maker.b.stream_id, maker.key, maker.clocks)
    stream_id = exchanged_id(made) if exchanged else made
    alias = ", ".join(scope.written[position].alias for position in positions)
    return Side(stream_id, name, alias, window_us, None, (), tuple(sorted(columns)))


def time_of(scope: StepScope, position: int) -> Origin:
    """Return the event time column of a stream."""
    return position, scope.written[position].stream.event_time


def _handed(scope: StepScope, handed: set[Origin]) -> tuple[Output, ...]:
    """Return the columns that a step passes to later steps, by name."""
    outputs = []
    for origin in handed:
        side, name = scope.named(origin)
        columns = () if name == RANK else ((side, name),)
        outputs.append(Output(scope.handed_as(origin), qualified(side, name), scope.type_of(origin), columns))
    return tuple(sorted(outputs, key=lambda output: output.name))
