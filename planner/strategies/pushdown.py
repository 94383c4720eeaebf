"""Stream partition with selection push-down (State-Slice, VLDB 2006, §3.2).

    Q1: A[w1] join B[w1]      Q2: σ(A)[w2] join B[w2]      w1 < w2

    A ──split by σ──┬─ fails ──> join p1: windows w1, for Q1
                    └─ passes ─> join p2: windows w2, for Q1 and Q2          B goes to both

If there are more queries, they are ranked by their windows. Each rank has a class of rows: a row is in the
class of the highest rank whose queries can use it. Queries of lower ranks may also use the row, but no query
of a higher rank can, so the row needs no wider window than the window of its rank.
Invariant: the classes of rows are disjoint, and every row that some query can use is in a class, so every
pair is made in exactly one join. The price of the strategy is that each join stores its own copy of the rows
of the other stream that it can use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.values.plan import JoinPlan, Partition, PlannedQuery, Slice
from planner.costs.cost import CostModel
from planner.costs.rates import FamilyRates
from planner.families.families import SIDES, Family, SideName, side_filter, side_window_us
from planner.families.filters import Weaker, keep_bits, weaker_filters
from planner.strategies.shared_join import shared_join
from planner.strategies.slice_dag import chain_of_path

_Ranks = list[list[PlannedQuery]]


def pushdown(family: Family, rates: FamilyRates, model: CostModel) -> tuple[JoinPlan, ...]:
    """Split one stream into classes of rows by the windows that they need, with one join per class.

    Side a is split if it has filters, otherwise side b. Without filters, or if all rows are of one class,
    there is a single join with the largest windows.

    Args:
        family: Queries and their filters.
        rates: Not needed: there is nothing to choose.
        model: Not needed.

    Returns:
        Joins sorted by id, from ``p1`` for the lowest rank to ``pn`` for the highest.

    Source: State-Slice §3.2, Figure 4; with three queries and one selection it is the plan of §7.2.
        Differences from the paper: any number of queries and selections is possible, and only one side is
        split (the paper has m × n joins for m parts of one side and n parts of the other). Rows of the other
        side are filtered before each join.
    """
    weaker = {side: weaker_filters(family, side) for side in SIDES}
    split: SideName = "a" if family.filters_a else "b"
    classes = _classes(family, split, weaker[split])
    if len(classes) == 1:
        a, b = (_whole(family.queries, side, weaker[side]) for side in SIDES)
        return shared_join(family, a, b)
    joins = []
    for number, members in enumerate(classes, start=1):
        serving = sorted((q for rank in classes[:number] for q in rank), key=lambda q: q.id)
        above = sorted(q.id for rank in classes[number:] for q in rank)
        chains = {side: _whole(serving, side, weaker[side]) for side in SIDES}
        # On the split side, a join admits only rows of its class, although lower ranks could use more rows.
        keep = keep_bits((side_filter(q, split) for q in members), weaker[split])
        (piece,) = chains[split]
        chains[split] = (Slice(piece.w_start_us, piece.w_end_us, keep),)
        joins.append(
            JoinPlan(
                id=f"p{number}",
                queries=tuple(q.id for q in serving),
                chain_a=chains["a"],
                chain_b=chains["b"],
                partition=Partition(split, tuple(sorted(q.id for q in members)), tuple(above)),
            )
        )
    return tuple(sorted(joins, key=lambda join: join.id))


def _classes(family: Family, split: SideName, weaker: Weaker) -> _Ranks:
    """Return, for each class of rows, the queries of its rank; the lowest rank comes first."""
    ranks: dict[tuple[int, int], list[PlannedQuery]] = {}
    for query in family.queries:
        ranks.setdefault((query.w_a_us, query.w_b_us), []).append(query)
    classes: _Ranks = []
    above: set[int | None] = set()
    for _, members in sorted(ranks.items(), reverse=True):
        bits = {side_filter(q, split) for q in members}
        if classes and (None in above or all(_covered(bit, above, weaker) for bit in bits)):
            # A higher rank can use every row that this rank can use, so the class of this rank is empty.
            classes[-1] += members
        else:
            classes.append(list(members))
        above |= bits
    return classes[::-1]


def _covered(bit: int | None, above: set[int | None], weaker: Mapping[int, frozenset[int]]) -> bool:
    """Return whether all rows that pass filter ``bit`` pass one of ``above``; False if ``bit`` is None."""
    return bit is not None and (bit in above or not above.isdisjoint(weaker.get(bit, frozenset())))


def _whole(queries: Sequence[PlannedQuery], side: SideName, weaker: Weaker) -> tuple[Slice, ...]:
    return chain_of_path([0, max(side_window_us(q, side) for q in queries)], queries, side, weaker)
