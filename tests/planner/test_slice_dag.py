from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from planner.slice_dag import slice_dag

windows = st.lists(st.integers(1, 50), min_size=1, max_size=8)


@given(windows)
def test_nodes_are_the_distinct_boundaries_and_every_later_one_can_end_a_slice(
    window_list: list[int],
) -> None:
    dag = slice_dag(window_list)
    boundaries = [0, *sorted(set(window_list))]
    assert list(dag.nodes) == boundaries
    assert set(dag.edges) == {(v, w) for v in boundaries for w in boundaries if v < w}


@given(windows)
def test_paths_are_all_chains(window_list: list[int]) -> None:
    chains = list(nx.all_simple_paths(slice_dag(window_list), 0, max(window_list)))
    assert len(chains) == 2 ** (len(set(window_list)) - 1)


@given(windows)
def test_single_steps_are_one_path(window_list: list[int]) -> None:
    dag = slice_dag(window_list, longest=1)
    assert list(nx.all_simple_paths(dag, 0, max(window_list))) == [[0, *sorted(set(window_list))]]


def test_longest_bounds_the_merged_slices() -> None:
    assert sorted(slice_dag([10, 20, 30], longest=2).edges) == [
        (0, 10),
        (0, 20),
        (10, 20),
        (10, 30),
        (20, 30),
    ]
