"""CPU-Opt: the chain of least cost, a shortest path in the slice DAG (State-Slice, VLDB 2006, §5.2, §6.2).

    v_0 ──12── v_1 ──9── v_2 ──15── v_3        edges have the cost of their slice under the model;
     └──────18─────┘└─────22────────┘          here v_0, v_2, v_3 (33) beats Mem-Opt's four boundaries (36)
     └──────────────41──────────────┘

A slice's cost depends only on its own ends (``costs.loads``), so a chain's cost is the length of its path.
The chain of each side is chosen alone, because rows of b probe the slices of a however b itself is sliced.
"""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np

from catalog.values.plan import JoinPlan
from planner.costs.cost import CostModel
from planner.costs.loads.loads import ChainLoads, chain_loads
from planner.costs.rates import FamilyRates, Floats
from planner.families.families import SIDES, Family, SideName, side_window_us
from planner.families.filters import weaker_filters
from planner.strategies.shared_join import shared_join
from planner.strategies.slice_dag import chain_of_path

_Ints = np.ndarray[tuple[int], np.dtype[np.int64]]

#: Two costs count as equal if they differ by less than this fraction of the lower one, because the rounding
#: of a sum depends on the order of its terms.
_EQUAL = 1e-11


def cpu_opt(family: Family, rates: FamilyRates, model: CostModel) -> tuple[JoinPlan, ...]:
    """Choose for each side the chain of least CPU cost among all 2^(N-1) chains.

    Merging slices saves purging, unions of results from several slices, and the overhead of operators. But it
    adds routing at the boundaries inside the merged slice. If queries have filters, the merged slice also
    keeps rows that only its first part needs, so more rows are held, probed and tested (§6.2). Among chains
    of equal cost, the chain with the fewest rows is chosen. If chains are equal in rows, too, the chain with
    the most slices is chosen.

    Args:
        family: Queries and their filters.
        rates: Rates and selectivities.
        model: Cost model that prices the slices.

    Returns:
        The one join that all queries share.

    Source: State-Slice §5.2, Figure 14 (Dijkstra's algorithm over the slice DAG), §6.2 for selections.
    """
    widest: dict[SideName, int] = {
        side: max(side_window_us(q, side) for q in family.queries) for side in SIDES
    }
    weaker = {side: weaker_filters(family, side) for side in SIDES}
    uncut = {side: chain_of_path([0, widest[side]], family.queries, side, weaker[side]) for side in SIDES}
    (join,) = shared_join(family, uncut["a"], uncut["b"])
    chains = {}
    for side in SIDES:
        loads = chain_loads(family, join, side, rates)
        path = [loads.boundaries_us[number] for number in _cheapest(loads, model)]
        chains[side] = chain_of_path(path, family.queries, side, weaker[side])
    return shared_join(family, chains["a"], chains["b"])


def _cheapest(loads: ChainLoads, model: CostModel) -> Sequence[int]:
    """Return the numbers of the boundaries on the shortest path."""
    last = len(loads.boundaries_us) - 1
    by_start = [_priced(loads, start, model) for start in range(last)]
    costs, rows = (np.concatenate(parts) for parts in zip(*by_start, strict=True))
    # Slices with the same start are consecutive, from the shortest to the longest.
    first = np.concatenate([[0], np.cumsum(np.arange(last, 0, -1))]).astype(np.int64)
    dag: nx.DiGraph[int] = nx.DiGraph()
    dag.add_nodes_from(range(last + 1))
    for start in range(last):
        inside = _useful(costs, first, start)
        slices = zip(
            inside.tolist(),
            costs[first[start] + inside].tolist(),
            rows[first[start] + inside].tolist(),
            strict=True,
        )
        dag.add_edges_from(
            (start, start + 1 + merged, {"cost": cost, "rows": held, "merged": merged})
            for merged, cost, held in slices
        )
    for weight in ("cost", "rows"):
        dag = _on_shortest_paths(dag, last, weight)
    path: Sequence[int] = nx.dijkstra_path(dag, 0, last, weight="merged")
    return path


def _on_shortest_paths(dag: nx.DiGraph[int], last: int, weight: str) -> nx.DiGraph[int]:
    """Return the graph reduced to the edges that are on a shortest path from 0 to ``last``."""
    behind = nx.single_source_dijkstra_path_length(dag, 0, weight=weight)
    ahead = nx.single_source_dijkstra_path_length(dag.reverse(copy=False), last, weight=weight)
    longest = behind[last] * (1 + _EQUAL)
    shortest: nx.DiGraph[int] = nx.DiGraph()
    shortest.add_edges_from(
        (start, end, edge)
        for start, end, edge in dag.edges(data=True)
        if behind[start] + edge[weight] + ahead[end] <= longest
    )
    return shortest


def _useful(costs: Floats, first: _Ints, start: int) -> _Ints:
    """Return the slices from ``start`` that may be on a best path.

    Any other slice can be cut into two slices that together cost less, so its edge is not needed. With
    thousands of windows few edges are left. This saves much time, because most of it goes into building the
    graph.

    Args:
        costs: Costs of all slices, sorted by start and then by end.
        first: Index of the first slice of each start.
        start: Number of the boundary.

    Returns:
        For each returned slice, the number of boundaries between its start and its end.
    """
    inside = np.arange(first[start + 1] - first[start], dtype=np.int64)
    own = costs[first[start] : first[start + 1]]
    middles = (inside[1:] - 1) // 2
    halves = own[middles] + costs[first[start + 1 + middles] + inside[1:] - middles - 1]
    kept: _Ints = inside[np.concatenate([[True], own[1:] <= halves * (1 + _EQUAL)])]
    return kept


def _priced(loads: ChainLoads, start: int, model: CostModel) -> tuple[Floats, Floats]:
    """Return the costs, and the numbers of held rows, of the slices from ``start`` to each later boundary."""
    inner, whole = loads.inner_slices(start), loads.last_slice(start)
    inner_rows = np.asarray(inner.held_rows)
    inner_costs = np.broadcast_to(np.asarray(model.slice_terms(inner).total), inner_rows.shape)
    costs = np.append(inner_costs, model.slice_terms(whole).total)
    return costs, np.append(inner_rows, whole.held_rows)
