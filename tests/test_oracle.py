"""The oracle against nested loops in Python, on tiny random workloads: the judge must be right first."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.values.stream import Column, HttpSource, Stream
from planner.bind.bind import bind
from tests.examples import seeds
from tests.oracle import Oracle
from tests.oracle_naive import naive_positions
from tests.scripts import make_script
from tests.workload_spec import WorkloadSpec
from tests.workloads import Size, make_workload


@pytest.mark.parametrize("seed", seeds(25, 5))
def test_oracle_equals_nested_loops(seed: int, tmp_path: Path) -> None:
    judge(Oracle(*make_workload(seed, tmp_path, Size(rows=60, queries=7, steps=4, max_pairs=2000))))


@pytest.mark.parametrize("seed", seeds(25, 5))
def test_oracle_equals_nested_loops_on_scripts(seed: int, tmp_path: Path) -> None:
    judge(
        Oracle(*make_script(seed, tmp_path, Size(rows=60, queries=7, steps=4, max_pairs=2000, files=(6, 9))))
    )


@pytest.mark.parametrize("seed", seeds(25, 5))
def test_oracle_equals_nested_loops_on_outer_semi_and_anti_joins(seed: int, tmp_path: Path) -> None:
    size = Size(rows=60, queries=7, steps=4, max_pairs=2000, absence=0.8)
    oracle = Oracle(*make_workload(seed, tmp_path, size))
    judge(oracle)
    for life in oracle.history.lives:
        bound = bind(life.query.cql(), streams_of(oracle.workload))
        preserved = tuple(sorted("a" if life.written("a") == side else "b" for side in life.query.preserved))
        assert (bound.kind, bound.preserved) == (life.query.kind, preserved), life.query.cql()


def streams_of(workload: WorkloadSpec) -> dict[str, Stream]:
    """Return the streams as the binder knows them."""
    return {
        s.name: Stream(
            number,
            s.name,
            tuple(Column(*column) for column in s.columns.items()),
            s.event_time,
            s.lateness_us,
            HttpSource(),
        )
        for number, s in enumerate(workload.streams, start=1)
    }


def judge(oracle: Oracle) -> None:
    for life in oracle.history.lives:
        pairs = oracle.pairs(life)
        found = list(zip(pairs["_pos_a"].to_pylist(), pairs["_pos_b"].to_pylist(), strict=True))
        assert found == naive_positions(oracle.history, life), (
            f"seed {oracle.workload.seed}: {life.query.cql()}"
        )
