"""The join tree that a query requests in its TREE clause; trees that cannot be executed are refused."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import Token

from catalog.steps import steps
from catalog.values.query import Query
from catalog.wording.wording import listed, nearest_or_known
from planner.bind.keys.distances import Distances
from planner.bind.keys.step_keys import Equals, Joining, StepKey, may_be_made_again, spine, step_keys
from planner.errors import CqlSyntaxError, UnknownStream, UnsupportedCql
from planner.sql.scopes.step_scope import Item, StepScope, flat
from planner.sql.tree_clause import Named, TreeClause

#: Positions of streams whose pairs are not stored, and the position of the stream whose rows cause them to be
#: recomputed.
Again = tuple[tuple[int, ...], int]

_BOTH_SIDES = "a tree with pairs on both sides of a step"


@dataclass(frozen=True, slots=True)
class NamedTree:
    """A join tree given by the TREE clause of a query.

    Attributes:
        clause: The TREE clause as written.
        scope: Names and streams of the query.
    """

    clause: TreeClause
    scope: StepScope

    def joining(
        self,
        equal: Sequence[Equals],
        linked: Sequence[frozenset[int]],
        distances: Distances,
        *,
        timed: bool,
    ) -> Joining:
        """Return the join order that the TREE clause requests.

        Args:
            equal: Sets of equal columns.
            linked: For each condition on several streams, the positions of its streams.
            distances: Bounds on event times, including all implied bounds.
            timed: Whether all windows are time windows.

        Raises:
            CqlSyntaxError: TREE names a stream twice, or leaves out a stream.
            UnknownStream: TREE contains a name that is not in FROM.
            UnsupportedCql: The streams cannot be joined in this order.
        """
        positions, again = self._order(self.clause.items)
        self._check_names(positions)
        keys = step_keys(positions, self._ids, equal)
        if all(isinstance(item, int) for item in positions):
            self._check_linked(positions, keys, equal, linked)
        else:
            self._check_both_sides(keys)
        for before, joined in again:
            key = next(key for key in keys if key.joined == {*before, joined})
            possible = may_be_made_again(distances, before, joined)
            if not timed or not key.parts or key.exchanged or not possible:
                self._refuse(
                    f"a tree that does not store the pairs of {self._aliases(before)}",
                    "Pairs can be recomputed only if all windows are time windows, the key does not change, "
                    "and a pair is not needed longer than its rows are stored.",
                    f"Write parentheses around {self._aliases(before)}.",
                )
        return Joining(positions, frozenset(frozenset(before) for before, _ in again))

    def _check_linked(
        self,
        positions: tuple[Item, ...],
        keys: Sequence[StepKey],
        equal: Sequence[Equals],
        linked: Sequence[frozenset[int]],
    ) -> None:
        """Refuse a step that no condition joins, and a first step without a key if any columns are equal."""
        joined = [frozenset(p for p, _ in columns) for columns in equal] + [*linked]
        for place, key in enumerate(keys, 1):
            left, right = set(flat(positions[:place])), set(flat(positions[place : place + 1]))
            # A condition on several streams is tested at the first step that has joined all of them.
            possible = any(each & left and each & right and each <= left | right for each in joined)
            if not key.parts and (not possible or (place == 1 and equal)):
                self._refuse(
                    "a step that no condition joins" if not possible else "a first step without an equal key",
                    f"No {'condition joins' if not possible else 'equal columns join'} "
                    f"{self._aliases(right)} to {self._aliases(left)}.",
                )

    def _check_both_sides(self, keys: Sequence[StepKey]) -> None:
        """Refuse a step without a key in a tree where both sides of some step are pairs."""
        for key in keys:
            if not key.parts:
                self._refuse(
                    f"a step without an equal key in {_BOTH_SIDES}",
                    f"No equal columns join {self._aliases(key.joined)} there.",
                )

    def check(self, query: Query) -> None:
        """Refuse a query in which two steps join the same streams on the same key.

        A family identifies a query by its id alone, so it cannot contain two steps of one query.

        Args:
            query: The bound query.

        Raises:
            UnsupportedCql: Two steps of the query would belong to one family.
        """
        seen = set()
        for step in steps(query):
            family = (step.a.stream_id, step.b.stream_id, step.key, step.clocks)
            if family in seen:
                self._refuse(f"a tree that joins {step.a.stream} and {step.b.stream} on one key twice")
            seen.add(family)

    @property
    def _ids(self) -> list[int]:
        return [this.stream.id for this in self.scope.written]

    def _order(self, named: Named) -> tuple[tuple[Item, ...], list[Again]]:
        """Return the positions in FROM in join order, and the sets of streams whose pairs are not stored."""
        if isinstance(named, Token):
            return (self._position(named),), []
        first, *others = named
        positions, again = self._order(first)
        for place, each in enumerate(others):
            joined, again_there = self._order(each)
            before = flat(positions)
            if place and len(joined) > 1:
                self._refuse(
                    f"a tree that joins pairs of {self._aliases(flat(joined))} with pairs that are not "
                    "stored",
                    f"Pairs of {self._aliases(before)} can be recomputed only for rows of a single stream.",
                    f"Write parentheses around {self._aliases(before)}.",
                )
            if place:
                again.append((before, flat(joined)[0]))
            again += again_there
            positions = spine(positions, joined, self._ids)
        return positions, again

    def _position(self, name: Token) -> int:
        aliases = [this.alias for this in self.scope.written]
        for position, alias in enumerate(aliases):
            if alias.lower() == name.text.lower():
                return position
        raise UnknownStream(
            f'"{name.text}" in TREE is not in FROM',
            hint=nearest_or_known(name.text, aliases, "name"),
            at=name,
        )

    def _check_names(self, positions: tuple[Item, ...]) -> None:
        """Refuse a tree that does not name each stream exactly once."""
        named = flat(positions)
        missing = set(range(len(self.scope.written))) - set(named)
        twice = {p for p in named if named.count(p) > 1}
        if missing or twice:
            what = f"names {self._aliases(twice)} twice" if twice else f"leaves out {self._aliases(missing)}"
            raise CqlSyntaxError(f"TREE {what}", hint="Name each stream of FROM once.", at=self.clause.word)

    def _aliases(self, positions: Collection[int]) -> str:
        return listed([self.scope.written[p].alias for p in sorted(positions)])

    def _refuse(
        self,
        construct: str,
        detail: str | None = None,
        hint: str = "Leave TREE out: then the tree with the lowest cost is chosen.",
    ) -> NoReturn:
        raise UnsupportedCql(f"{construct} is not supported", detail=detail, hint=hint, at=self.clause.word)
