"""The kind of join that a query requests: WHERE can turn an outer join into an inner or anti join.

SQL fills rows without a partner with NULLs, and then applies WHERE. An outer join has up to three kinds of
results, and each condition in WHERE is examined for each kind:

    pairs                        the condition as it is; keys and event times are never NULL
    rows of a without a partner  the condition with every column of b NULL
    rows of b without a partner  the condition with every column of a NULL

If results of one kind can never pass WHERE, this kind is dropped: a LEFT JOIN without unmatched rows of a is
a JOIN, and a LEFT JOIN without pairs is an anti join. If the remaining join cannot express a condition as a
filter or join condition, the query is refused.

    A LEFT JOIN B ON ...  WHERE a.v > 3             outer, filter of a
    A LEFT JOIN B ON ...  WHERE b.v > 3             inner, filter of b
    A LEFT JOIN B ON ...  WHERE b.k IS NULL         anti
    A FULL JOIN B ON ...  WHERE a.v > 3             LEFT JOIN, filter of a
    A FULL JOIN B ON ...  WHERE a.k IS NULL OR b.k IS NULL      anti, for rows of a and rows of b
    A LEFT JOIN B ON ...  WHERE b.v IS NULL         refused: v may also be NULL in pairs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from catalog.values.query import JoinKind
from planner.bind.canonical import ALWAYS, NEVER, canonical
from planner.bind.pieces import key_columns, pieces
from planner.bind.unmatched.branches import with_chosen_branches
from planner.bind.unmatched.nulls import condition_without
from planner.errors import UnsupportedCql
from planner.expressions.expressions import compile_condition, qualified
from planner.expressions.types.typed import Typed
from planner.predicates.conditions import Atom, Operand, null_test
from planner.sql.scopes.scope import Scope, SideName
from planner.sql.statement import Statement


@dataclass(frozen=True, slots=True)
class JoinMeaning:
    """The join that a query requests.

    Attributes:
        kind: Kind of the join.
        preserved: Sides whose rows are checked for matches.
        on: Conjuncts that define a match; in an inner join, all conjuncts of the query.
        where: Conjuncts on the preserved side alone.
        null_side: Side whose columns are NULL in every result, although the query may use these columns.
    """

    kind: JoinKind
    preserved: tuple[SideName, ...]
    on: tuple[exp.Expr, ...]
    where: tuple[exp.Expr, ...] = ()
    null_side: SideName | None = None

    @property
    def keeps_absent(self) -> bool:
        """Return whether rows without a partner are results."""
        return self.kind in ("outer", "anti")


def other(side: SideName) -> SideName:
    """Return side b for side a, and side a for side b."""
    return "b" if side == "a" else "a"


def join_meaning(statement: Statement, scope: Scope) -> JoinMeaning:
    """Return the join that a statement requests.

    Raises:
        UnsupportedCql: A condition in the WHERE of an outer join cannot be expressed by the kind
            of the join or by a filter.
        InvalidInput: A condition has an unknown name or a wrong type.
    """
    on, where = pieces(statement.on, scope), pieces(statement.where, scope)
    kind = statement.form.kind
    preserved: tuple[SideName, ...] = tuple(
        sorted(scope.written[position].side for position in statement.form.preserved)
    )
    if kind == "inner":
        return JoinMeaning("inner", (), (*on, *where))
    if kind != "outer":
        return JoinMeaning(kind, preserved, tuple(on), tuple(where))
    return _Outer(statement, scope, preserved, on, where).meaning()


class _Outer:
    """An outer join and its WHERE."""

    def __init__(
        self,
        statement: Statement,
        scope: Scope,
        preserved: tuple[SideName, ...],
        on: Sequence[exp.Expr],
        where: Sequence[exp.Expr],
    ) -> None:
        self.statement, self.scope, self.preserved = statement, scope, preserved
        self.on = tuple(on)
        compiled = [(part, compile_condition(part, scope)) for part in where]
        judged = [pair for pair in compiled if canonical([pair[1]]).sql != ALWAYS]
        self.where = tuple(part for part, _ in judged)
        self.conditions = [condition for _, condition in judged]

    def meaning(self) -> JoinMeaning:
        """Return the join that has the same results as the outer join with its WHERE."""
        if len(self.preserved) == 1 and all(c.sides <= set(self.preserved) for c in self.conditions):
            return JoinMeaning("outer", self.preserved, self.on, self.where)
        alone = {
            side: [condition_without(c, self.scope, other(side)) for c in self.where]
            for side in self.preserved
        }
        left = tuple(side for side in self.preserved if self._possible(side, alone[side]))
        if not left:
            return JoinMeaning("inner", (), (*self.on, *self.where))
        if self.where and not self._pairs_possible():
            if len(left) == 1:
                return JoinMeaning("anti", left, self.on, tuple(alone[left[0]]), other(left[0]))
            for node, *conditions in zip(self.where, *alone.values(), strict=True):
                # A filter would remove rows that are partners of the other stream's rows.
                if any(not self._always(condition) for condition in conditions):
                    raise UnsupportedCql(
                        "this condition on rows of both streams without a partner is not supported",
                        detail="WHERE may not remove any row without a partner here.",
                        hint=f"Register an anti join for each stream, such as {self._anti()}",
                        at=node,
                    )
            return JoinMeaning("anti", left, self.on)
        kept = []
        for node, condition in zip(self.where, self.conditions, strict=True):
            if len(left) == 1 and condition.sides == set(left):
                kept.append(node)
                continue
            self._refuse(node, left)
        return JoinMeaning("outer", left, self.on, tuple(kept))

    def _possible(self, side: SideName, conditions: Sequence[exp.Expr]) -> bool:
        """Return whether a row of the given side without a partner may pass WHERE."""
        typed = [compile_condition(condition, self.scope) for condition in conditions]
        return canonical([*typed, self._not_null(side, self.scope.side(side).stream.event_time)]).sql != NEVER

    def _always(self, condition: exp.Expr) -> bool:
        """Return whether a condition is true for every row."""
        return canonical([compile_condition(condition, self.scope)]).sql == ALWAYS

    def _pairs_possible(self) -> bool:
        """Return whether a pair may pass WHERE: its keys and event times are not NULL, and it passes ON."""
        known = [self._not_null(side.side, side.stream.event_time) for side in self.scope.written]
        for name in self.statement.using:
            for side in self.scope.written:
                column = side.stream.column(name.name)
                known += [self._not_null(side.side, column.name)] if column is not None else []
        for node in self.on:
            pair = key_columns(node, self.scope)
            if pair is not None:
                known += [self._not_null("a", pair[0]), self._not_null("b", pair[1])]
            condition = compile_condition(node, self.scope)
            known += [condition] if isinstance(condition.predicate, Atom) else []
        certain = canonical(known).sql

        def decided(part: exp.Expr) -> bool | None:
            found = canonical([compile_condition(part, self.scope), *known]).sql
            return {certain: True, NEVER: False}.get(found)

        chosen = [with_chosen_branches(node, decided) for node in self.where]
        conditions = [compile_condition(node, self.scope) for node in chosen]
        return canonical([*conditions, *known]).sql != NEVER

    def _not_null(self, side: SideName, column: str) -> Typed:
        text = qualified(side, column)
        columns = frozenset({(side, column)})
        predicate = null_test(Operand(text, columns), negated=True)
        return Typed(f"{text} IS NOT NULL", "boolean", columns, form="comparison", predicate=predicate)

    def _refuse(self, node: exp.Expr, left: tuple[SideName, ...]) -> None:
        kept = self.scope.side(left[0])
        absent = self.scope.side(other(left[0]))
        whose = f'"{kept.alias}"' if len(left) == 1 else f'"{kept.alias}" or "{absent.alias}"'
        raise UnsupportedCql(
            "this condition in the WHERE of an outer join is not supported",
            detail="WHERE applies after the join, and this condition may be true for pairs and for rows of "
            f"{whose} without a partner.",
            hint="Move the condition to ON, where it defines which rows are partners. To get only rows "
            f"without a partner, write {absent.alias}.{absent.stream.event_time} IS NULL. To get only pairs, "
            "write JOIN.",
            at=node,
        )

    def _anti(self) -> str:
        first, second = self.scope.written
        return f"{first.stream.name} LEFT ANTI JOIN {second.stream.name} ON ..."
