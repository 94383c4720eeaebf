"""The slice DAG of one side of a family (State-Slice, VLDB 2006, §5.2, Figure 14).

    v_0 = 0 ──e_01── v_1 = w_1 ──e_12── v_2 = w_2 ──e_23── v_3 = w_3
     └────────e_02 (merged)──────┘└──────e_13 (merged)─────┘
     └──────────────────────e_03──────────────────────────┘

Nodes are 0 and the distinct window lengths of the side (µs). Edge e_ij is the slice [w_i, w_j); the slice is
merged if j > i + 1. Every path v_0 -> v_N is a chain that answers all queries: Mem-Opt is the path without
merged slices, and CPU-Opt is the shortest path if the length of an edge is the cost of its slice
(``planner.strategies.cpu_opt`` builds that graph).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from catalog.values.plan import PlannedQuery, Slice
from planner.families.families import SideName, side_filter, side_window_us
from planner.families.filters import NOTHING_IMPLIED, Weaker, keep_bits


def chain_of_path(
    path: Sequence[int], queries: Sequence[PlannedQuery], side: SideName, weaker: Weaker = NOTHING_IMPLIED
) -> tuple[Slice, ...]:
    """Turn a path of boundaries into a chain of slices, each with the filter for the rows that it keeps.

    A query reaches each slice that starts before the end of the query's window. A slice keeps exactly the
    rows that pass the filter of some query that reaches the slice (State-Slice §6.1, cond'_i).

    Args:
        path: Boundaries from 0 to the side's largest window, µs, ascending.
        queries: Queries that the chain serves, sorted by id.
        side: Side whose rows the chain holds.
        weaker: For each filter of the side, the filters that it implies.

    Returns:
        One slice per step of the path.
    """
    longest: dict[int | None, int] = {}
    for query in queries:
        bit = side_filter(query, side)
        longest[bit] = max(side_window_us(query, side), longest.get(bit, 0))
    chain: list[Slice] = []
    # From the last slice to the first, the set of filters only grows, so ``keep`` is computed again only when
    # a filter was added.
    waiting = sorted(longest.items(), key=lambda item: item[1])
    bits: list[int | None] = []
    keep = keep_bits(bits, weaker)
    for start, end in reversed(tuple(itertools.pairwise(path))):
        came = len(bits)
        while waiting and waiting[-1][1] > start:
            bits.append(waiting.pop()[0])
        if len(bits) > came:
            keep = keep_bits(bits, weaker)
        chain.append(Slice(start, end, keep))
    return tuple(reversed(chain))
