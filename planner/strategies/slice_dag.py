"""The slice DAG of one side of a family (State-Slice, VLDB 2006, §5.2, Figure 14).

    v_0 = 0 ──e_01── v_1 = w_1 ──e_12── v_2 = w_2 ──e_23── v_3 = w_3
     └────────e_02 (merged)──────┘└──────e_13 (merged)─────┘
     └──────────────────────e_03──────────────────────────┘

Nodes are the distinct window lengths of the side (µs) and 0; edge e_ij is the sliced join [w_i, w_j), merged
if it spans more than one boundary. Every path v_0 -> v_N is a chain that answers all queries: Mem-Opt is the
one of all single steps, CPU-Opt the shortest one once edges carry their cost (``planner.strategies.cpu_opt``
builds that graph).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from catalog.values.plan import PlannedQuery, Slice
from planner.families.families import SideName, side_filter, side_window_us
from planner.families.filters import NOTHING_IMPLIED, Weaker, keep_bits


def chain_of_path(
    path: Sequence[int], queries: Sequence[PlannedQuery], side: SideName, weaker: Weaker = NOTHING_IMPLIED
) -> tuple[Slice, ...]:
    """Turn a path of boundaries into a chain: the queries that reach each slice, and the rows it keeps.

    A query reaches a slice iff its window ends beyond the slice's start; the slice keeps a row iff it passes
    the filter of some such query (State-Slice §6.1, cond'_i).

    Args:
        path: Boundaries from 0 to the side's largest window, µs, ascending.
        queries: Queries that the chain serves, by id.
        side: Side whose rows the chain holds.
        weaker: Filters of the side that each of its filters implies.

    Returns:
        One slice per step of the path.
    """
    windows = np.array([side_window_us(q, side) for q in queries], dtype=np.int64)
    ids = np.array([q.id for q in queries], dtype=np.int64)
    longest: dict[int | None, int] = {}
    for query, window in zip(queries, windows.tolist(), strict=True):
        bit = side_filter(query, side)
        longest[bit] = max(window, longest.get(bit, 0))
    return tuple(
        Slice(
            w_start_us=start,
            w_end_us=end,
            queries=tuple(ids[windows > start].tolist()),
            keep=keep_bits((bit for bit, window in longest.items() if window > start), weaker),
        )
        for start, end in itertools.pairwise(path)
    )
