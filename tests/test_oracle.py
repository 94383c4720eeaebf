"""The oracle against nested loops in Python, on tiny random workloads: the judge must be right first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle import Oracle
from tests.oracle_naive import naive_positions
from tests.scripts import make_script
from tests.workloads import Size, make_workload


@pytest.mark.parametrize("seed", range(25))
def test_oracle_equals_nested_loops(seed: int, tmp_path: Path) -> None:
    judge(Oracle(*make_workload(seed, tmp_path, Size(rows=60, queries=7, steps=4, max_pairs=2000))))


@pytest.mark.parametrize("seed", range(25))
def test_oracle_equals_nested_loops_on_scripts(seed: int, tmp_path: Path) -> None:
    judge(
        Oracle(*make_script(seed, tmp_path, Size(rows=60, queries=7, steps=4, max_pairs=2000, files=(6, 9))))
    )


def judge(oracle: Oracle) -> None:
    for life in oracle.history.lives:
        pairs = oracle.pairs(life)
        found = list(zip(pairs["_pos_a"].to_pylist(), pairs["_pos_b"].to_pylist(), strict=True))
        assert found == naive_positions(oracle.history, life), (
            f"seed {oracle.workload.seed}: {life.query.cql()}"
        )
