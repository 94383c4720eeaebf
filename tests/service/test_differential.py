"""Random workloads through `sluice run`, row by row against DuckDB over the same files.

Each run has several families, queries that come and go, every key type, disorder and late rows, so one Spark
start checks a lot. A failure prints its seed; ``make_workload(seed, directory, size)`` makes it again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from catalog.values.plan import Partitioning, Strategy
from tests.oracle import Oracle
from tests.sluice_run import Mode, assert_equals_oracle, run
from tests.workloads import Size, make_workload

STRATEGIES: tuple[Strategy, ...] = ("unshared", "pullup", "pushdown", "mem-opt", "cpu-opt")

SIZE = Size(rows=500, queries=8, steps=4)
LARGE = Size(rows=3000, queries=14, steps=8, max_pairs=40_000)

#: Seed, buckets, way of results, objectives in turn, who spreads the keys. Of 160 seeds these say most: in
#: each, at least six of eight queries have results, lateness changes the answer of four or more and (but for
#: 157) backfill that of two; together they have every key type, three families at once and self-joins.
FEW: tuple[tuple[int, int, Mode, tuple[Strategy, ...], Partitioning], ...] = (
    (107, 5, "shared", ("pullup", "pushdown", "mem-opt"), "replicate"),
)
#: The others of the five, for the long tests: a run takes a minute where two of them share two cores.
OTHERS: tuple[tuple[int, int, Mode, tuple[Strategy, ...], Partitioning], ...] = (
    (83, 3, "per-query", ("unshared", "mem-opt", "pullup"), "auto"),
    (159, 1, "per-query", ("mem-opt",), "hash"),
    (30, 2, "shared", ("pushdown", "cpu-opt"), "hash"),
    (157, 4, "per-query", ("cpu-opt", "unshared"), "replicate"),
)


def check(
    seed: int,
    directory: Path,
    buckets: int,
    mode: Mode,
    size: Size,
    strategies: Sequence[Strategy],
    partitioning: Partitioning,
) -> None:
    spec, files = make_workload(seed, directory, size, strategies)
    print(f"seed {seed}, {buckets} buckets {partitioning}, {mode}, {' then '.join(strategies)}: {directory}")
    # Half of them send rows in files, however few.
    environment = {"SLUICE_PARTITIONING": partitioning, "SLUICE_ROWS_FILE_KB": str(256 * (seed % 2))}
    outcome = run(
        directory / "WORKLOAD.yaml", directory / "out", mode=mode, buckets=buckets, environment=environment
    )
    assert_equals_oracle(outcome, directory / "out", Oracle(spec, files), mode)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("seed", "buckets", "mode", "strategies", "partitioning"),
    [*FEW, *(pytest.param(*other, marks=pytest.mark.slow) for other in OTHERS)],
)
def test_random_workload_equals_oracle(
    seed: int,
    buckets: int,
    mode: Mode,
    strategies: tuple[Strategy, ...],
    partitioning: Partitioning,
    tmp_path: Path,
) -> None:
    check(seed, tmp_path, buckets, mode, SIZE, strategies, partitioning)


#: Workloads most of whose queries are outer, semi and anti joins.
ABSENCE = Size(rows=300, queries=6, steps=2, absence=0.8)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", [3, *range(200, 220)])
def test_random_workload_with_absence_equals_oracle(seed: int, tmp_path: Path) -> None:
    strategies = (STRATEGIES[seed % 5], STRATEGIES[(seed + 2) % 5])
    check(seed, tmp_path, 1 + seed % 4, "per-query", ABSENCE, strategies, "auto")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_random_workloads_equal_oracle(seed: int, tmp_path: Path) -> None:
    mode: Mode = "shared" if seed % 3 == 0 else "per-query"
    strategies = random.Random(seed).sample(STRATEGIES, k=1 + seed % 3)
    partitioning = random.Random(seed).choice(get_args(Partitioning))
    check(seed, tmp_path, 1 + seed % 5, mode, SIZE if seed % 2 else LARGE, strategies, partitioning)
