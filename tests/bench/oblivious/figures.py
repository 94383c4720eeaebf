"""Tables of WO-Join's Figures 5 to 11; the curves of the paper are lost, its numbers are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from catalog.values.policies.memory import Memory
from operators.kernels.keys import Bools
from planner.orders.buffers import OrderedStream, joined
from tests.bench.oblivious.arriving import GAP_S, Arriving, LookedBack, looked_back
from tests.bench.oblivious.one_plan import run_whole
from tests.bench.oblivious.queries import (
    MULTIPLICITY,
    Run,
    Tree,
    factors,
    predicted,
    query_1_streams,
    run_join,
    run_tree,
)
from tests.bench.reports import table

END_S = 100
STREAMS = (1, 2, 3)
READ_AHEAD = 100
#: Ways to save memory, in the order of the paper.
WAYS = (Memory(), Memory("msf"), Memory("dbf", READ_AHEAD), Memory("hybrid", READ_AHEAD))
#: Length of the batches of Figure 11.
SHORT_S = 0.1
#: The accuracy of the paper's larger windows.
WANTED = 0.992


def query_1_tables(runs: int) -> Iterator[str]:
    """Yield the tables of Query 1: Figures 5, 8, 9 and 11."""
    drawn = [query_1_streams(seed, END_S) for seed in range(runs)]
    known = [factors(streams) for streams in drawn]
    back = [looked_back(streams) for streams in drawn]
    lines: list[tuple[object, ...]] = []
    plain: list[Run] = []
    for name, memory in (("declared", WAYS[0]), ("monitored", WAYS[0]), *((w.strategy, w) for w in WAYS[1:])):
        figures = []
        for streams, scrambles, found in zip(drawn, known, back, strict=True):
            given = [None] * 3 if name == "monitored" else scrambles
            run = run_join(streams, given, memory, END_S)
            facts = [OrderedStream(k, 1 / GAP_S, MULTIPLICITY) for k in scrambles]
            expected = int(predicted(streams, facts, END_S).sum(axis=1).max()) if name == "declared" else 0
            optimum = int(found.peaks(END_S).sum(axis=1).max())
            complete = run.results / len(found.times_s)
            held = (run.peak(STREAMS), run.mean(STREAMS), run.peak((3,)), run.peak((-1,)))
            figures.append((optimum, *held, expected, complete))
            plain += [run] if name == "declared" else []
        found_all = np.array(figures)
        means = found_all[:, :6].mean(axis=0).round().astype(int).tolist()
        lines.append((name, *means[:5], means[5] or None, f"{found_all[:, 6].min():.2%}"))
    header = ("", "optimum, peak", "rows in memory, peak", "mean", "of S3, peak", "pairs of the first step")
    yield table((*header, "predicted, peak", "results by the end"), lines)
    yield _query_1_windows(plain, back, drawn)
    yield _latencies(runs)


#: Returns how many results are found and how many are possible, by the size of windows relative to the mean
#: rows of an ordered join.
Found = Callable[[float], tuple[int, int]]


def _windows(name: str, rows: Sequence[float], ways: Mapping[str, Sequence[Found]]) -> str:
    """Return the accuracy of windows of a fixed size, and the size that they need (Figure 8).

    Args:
        name: The query.
        rows: Mean rows of the ordered join, of each run.
        ways: For each kind of window and run, how many results are found and possible, by the size.
    """
    lines = []
    for kind, runs in ways.items():
        accuracy = np.mean([found / possible for found, possible in (of(1.0) for of in runs)])
        sizes = np.geomspace(1, 1024, 200).tolist()
        factors = [
            next((size for size in sizes if of(size)[0] >= WANTED * of(size)[1]), np.nan) for of in runs
        ]
        lines.append((f"{name}, {kind}", np.mean(rows), f"{accuracy:.0%}", np.mean(factors)))
    header = (
        "windows",
        "rows in memory, mean",
        "accuracy of as large windows",
        f"times as large for {WANTED:.1%}",
    )
    return table(header, lines)


def _query_1_windows(
    plain: Sequence[Run], back: Sequence[LookedBack], drawn: Sequence[Sequence[Arriving]]
) -> str:
    rows = [run.mean(STREAMS) for run in plain]

    def by_rows(run: Run, found: LookedBack) -> Found:
        held = np.array([run.mean((n,)) for n in STREAMS])
        return lambda size: (int(found.within(size * held).sum()), len(found.times_s))

    def one_size(run: Run, found: LookedBack) -> Found:
        held = np.full(len(STREAMS), run.mean(STREAMS) / len(STREAMS))
        return lambda size: (int(found.within(size * held).sum()), len(found.times_s))

    def by_time(run: Run, found: LookedBack, streams: Sequence[Arriving]) -> Found:
        window_s = _window_s(run.mean(STREAMS), streams)
        return lambda size: (int(found.within_s(size * window_s).sum()), len(found.times_s))

    ways = {
        "of one length in time": [by_time(*each) for each in zip(plain, back, drawn, strict=True)],
        "of one number of rows": [one_size(*each) for each in zip(plain, back, strict=True)],
        "of a number of rows for each stream": [by_rows(*each) for each in zip(plain, back, strict=True)],
    }
    return _windows("Query 1", rows, ways)


def _window_s(rows: float, streams: Sequence[Arriving]) -> float:
    """Return the length of windows that hold so many rows of streams together."""
    return rows * END_S / sum(len(stream.values) for stream in streams)


def _query_2_windows(trees: Sequence[Tree]) -> str:
    """Return the accuracy of windows for Query 2, in which J1, J2 and J3 have windows."""

    def by_time(tree: Tree) -> Found:
        streams = (*tree.inputs[0], *tree.inputs[1], tree.s7, tree.s8)
        window_s = _window_s(tree.rows(), streams)
        leaves = [looked_back(inputs) for inputs in tree.inputs]
        return lambda size: _found(
            tree,
            [leaf.within_s(size * window_s) for leaf in leaves],
            lambda above: above.within_s(size * window_s),
        )

    def by_rows(tree: Tree) -> Found:
        held = [np.array([leaf.mean((n,)) for n in STREAMS]) for leaf in tree.leaves]
        of_root = np.array([tree.root.mean((n,)) for n in (1, 2)])
        leaves = [looked_back(inputs) for inputs in tree.inputs]
        return lambda size: _found(
            tree,
            [leaf.within(size * of) for leaf, of in zip(leaves, held, strict=True)],
            lambda above: above.within(size * of_root),
        )

    rows = [tree.rows() for tree in trees]
    ways = {
        "of one length in time": [by_time(tree) for tree in trees],
        "of a number of rows for each stream": [by_rows(tree) for tree in trees],
    }
    return _windows("Query 2", rows, ways)


def _found(tree: Tree, below: Sequence[Bools], within: Callable[[LookedBack], Bools]) -> tuple[int, int]:
    """Return how many results of J3 are found, and how many are possible.

    Args:
        tree: Query 2.
        below: Which results J1 and J2 find, in order.
        within: Tells which results of some rows of S7 and S8 are found by J3.
    """
    streams = [
        Arriving(made.values[found[: len(made.values)]], made.times_s[found[: len(made.values)]])
        for made, found in zip((tree.s7, tree.s8), below, strict=True)
    ]
    return int(within(looked_back(streams)).sum()), tree.root.results


def _latencies(runs: int) -> str:
    """Return how late results come (Figure 11)."""
    lines, base = [], 0.0
    ways = [("windows of 40 s", Memory(), 40.0), *((memory.strategy, memory, None) for memory in WAYS)]
    for name, memory, window_s in ways:
        late_s = results = 0.0
        for seed in range(runs):
            streams = query_1_streams(seed, END_S)
            run = run_join(streams, factors(streams), memory, END_S, batch_s=SHORT_S, window_s=window_s)
            late_s, results = late_s + run.late_s, results + run.results
        base = base or late_s / results
        lines.append((name, late_s / results, late_s / results / base))
    return table(("", "latency, s", "times that of windows"), lines)


def query_2_tables(runs: int) -> Iterator[str]:
    """Yield the tables of Query 2: Figures 6, 7, 8 and 10."""
    lines: list[tuple[object, ...]] = []
    trees: list[Tree] = []
    for memory in WAYS:
        found = [run_tree(seed, END_S, memory) for seed in range(runs)]
        trees = trees or found
        means = [list(tree.mean().values()) for tree in found]
        first, above, pairs = np.mean(means, axis=0)
        complete = [tree.root.results / len(looked_back((tree.s7, tree.s8)).times_s) for tree in found]
        lines.append((memory.strategy, first + above, first, above, pairs, f"{min(complete):.2%}"))
    back = [looked_back((tree.s7, tree.s8)) for tree in trees]
    yield _upper_operator(trees, back)
    yield _query_2_windows(trees)
    header = ("", "rows in memory, mean", "of S1 to S6", "of S7 and S8", "pairs inside J1 and J2")
    yield table((*header, "results of S7 and S8 by the end"), lines)
    yield _one_plan(runs)


def _one_plan(runs: int) -> str:
    """Return what Query 2 holds as one query, with S2 slow (Figure 10)."""
    lines = []
    for memory in WAYS:
        found = [run_whole(seed, END_S, memory) for seed in range(runs)]
        held = [float(np.mean([run.mean(what) for run in found])) for what in ("S1-S6", "S7, S8", "pairs")]
        complete = sum(run.results for run in found) / sum(run.possible for run in found)
        lines.append((memory.strategy, sum(held), *held, f"{complete:.2%}"))
    header = ("one plan", "rows in memory, mean", "of S1 to S6", "of S7 and S8", "pairs inside J1 and J2")
    return table((*header, "results"), lines)


def _upper_operator(trees: list[Tree], back: list[LookedBack]) -> str:
    """Return what J3 holds of its inputs, beside the optimum and the prediction (Figures 6 and 7)."""
    lines = []
    for number, name in enumerate(("S7", "S8")):
        figures = []
        for tree, of in zip(trees, back, strict=True):
            upper = [
                joined([OrderedStream(k, 1 / GAP_S, MULTIPLICITY) for k in factors(streams)])
                for streams in tree.inputs
            ]
            optimum, held = int(of.peaks(END_S)[:, number].max()), tree.root.peak((number + 1,))
            expected = int(predicted((tree.s7, tree.s8), upper, END_S, recent=False)[:, number].max())
            actual = factors((tree.s7, tree.s8))[number]
            figures.append((optimum, held, held / optimum, expected, upper[number].scramble / actual))
        optimum, held, over, expected, of_k = np.array(figures).mean(axis=0)
        lines.append((name, round(optimum), round(held), over, round(expected), of_k))
    header = ("", "optimum, peak", "held, peak", "held / optimum", "predicted, peak", "k of Eq. 10 / k")
    return table(header, lines)
