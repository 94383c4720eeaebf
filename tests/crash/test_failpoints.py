"""Exactly once: a run that dies at a failpoint and is started again ends with the oracle's rows.

`make test` kills one run, in `tests/service/test_storage.py`.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.crash.killing import POINTS, SIZE, dead, failpoint
from tests.oracle import Oracle
from tests.sluice_run import Mode, assert_equals_oracle, run
from tests.workloads import make_workload

SEED = 6
#: Environments: all rows in files; those of these small batches in packets.
ROWS_IN: tuple[dict[str, str], ...] = ({"SLUICE_ROWS_FILE_KB": "0"}, {})


def die_then_finish(directory: Path, deaths: list[tuple[str, int]], mode: Mode, seed: int = SEED) -> None:
    """Let a run die at each of ``deaths`` in turn, then let it finish and check it.

    In every second life all rows go to the buckets in files, in the others these few go through Spark: so
    batches are replayed the other way, too.
    """
    spec, files = make_workload(seed, directory, SIZE)
    workload, out = directory / "WORKLOAD.yaml", directory / "out"
    for life, (point, batch) in enumerate(deaths):
        died = run(workload, out, mode=mode, environment=failpoint(point, batch) | ROWS_IN[life % 2])
        assert died.returncode == -signal.SIGKILL, f"{point}@{batch}: {died.stderr[-4000:]}"
        dead(point, out)
    outcome = run(workload, out, mode=mode, environment=ROWS_IN[len(deaths) % 2])
    assert not list((out / "_sluice/checkpoint/segments").glob(".*"))
    assert_equals_oracle(outcome, out, Oracle(spec, files), mode)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("point", "batch", "mode"), [("before-commit-log", 3, "per-query")])
def test_killed_run_ends_with_the_same_results(point: str, batch: int, mode: Mode, tmp_path: Path) -> None:
    die_then_finish(tmp_path, [(point, batch)], mode)


@pytest.mark.slow
@pytest.mark.spark
def test_run_killed_after_results_has_them_once(tmp_path: Path) -> None:
    die_then_finish(tmp_path, [("after-result-commit", 2)], "shared")


@pytest.mark.slow
@pytest.mark.spark
def test_run_killed_after_results_and_then_before_the_next_offsets(tmp_path: Path) -> None:
    die_then_finish(tmp_path, [("after-result-commit", 2), ("before-offset-log", 3)], "shared")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("batch", [0, 1, 4])
@pytest.mark.parametrize("point", POINTS)
def test_every_point_of_first_second_and_later_batch(point: str, batch: int, tmp_path: Path) -> None:
    die_then_finish(tmp_path, [(point, batch)], "shared" if batch == 1 else "per-query")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", [2, 3, 9])
def test_every_point_in_one_life(seed: int, tmp_path: Path) -> None:
    deaths = [(point, number // 2) for number, point in enumerate(POINTS)]
    die_then_finish(tmp_path, deaths, "per-query", seed)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("point", POINTS)
def test_dying_twice_at_the_same_point(point: str, tmp_path: Path) -> None:
    die_then_finish(tmp_path, [(point, 3)] * (1 if point == "after-commit-log" else 2), "per-query")
