"""Random scripts through `sluice run`, half of them killed in the middle and started again, against DuckDB.

Queries are added, updated, paused, resumed and removed, and strategies change, at most boundaries of a dozen
batches. A failure prints its seed; ``make_script(seed, directory)`` makes the workload again.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.crash.killing import is_running, kill, wait_for_commit
from tests.oracle import Oracle
from tests.scripts import make_script
from tests.sluice_run import Mode, Run, assert_equals_oracle, finish, start
from tests.workload_spec import WorkloadSpec

#: Seeds of `make test`: one that is killed. Every second one of all is.
FEW = (101,)
ALL = range(100, 125)


def actions(spec: WorkloadSpec) -> Counter[str]:
    """Count the kinds of steps."""
    return Counter(kind for step in spec.script for kind in step.document() if kind != "at_batch")


def check(seed: int, directory: Path) -> None:
    spec, files = make_script(seed, directory)
    oracle = Oracle(spec, files)
    mode: Mode = "shared" if seed % 5 == 4 else "per-query"
    kill_after = killed_after(seed, oracle.history.batches)
    print(f"seed {seed}, {mode}, {dict(actions(spec))}, killed after batch {kill_after}: {directory}")
    workload, out = directory / "WORKLOAD.yaml", directory / "out"
    if kill_after is not None:
        kill_in_the_middle(workload, out, mode, kill_after)
    assert_equals_oracle(run_to_end(workload, out, mode), out, oracle, mode)


def killed_after(seed: int, batches: int) -> int | None:
    """Return the batch after which every second seed's run is killed: neither the first nor near the end."""
    if seed % 2 == 0:
        return None
    return int(np.random.default_rng(seed).integers(1, max(2, batches // 2)))


def kill_in_the_middle(workload: Path, out: Path, mode: Mode, batch: int) -> None:
    """Start a run and kill its Python and its JVM while it works on what follows ``batch``."""
    process = start(workload, out, mode=mode)
    engine = wait_for_commit(process, out, batch)
    kill(engine.pid)
    kill(engine.jvm_pid)
    died = finish(process, timeout_s=60)
    assert died.returncode != 0, "the run ended before it was killed"
    assert not is_running(engine.pid)


def run_to_end(workload: Path, out: Path, mode: Mode) -> Run:
    # What was killed goes on with all rows in files; before, these few went through Spark.
    return finish(start(workload, out, mode=mode, environment={"SLUICE_ROWS_FILE_KB": "0"}))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", FEW)
def test_a_script_gives_what_duckdb_gives(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", [seed for seed in ALL if seed not in FEW])
def test_many_scripts_give_what_duckdb_gives(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


def test_the_scripts_use_every_kind_of_step(tmp_path: Path) -> None:
    kinds: Counter[str] = Counter()
    for seed in ALL:
        kinds += actions(make_script(seed, tmp_path / str(seed))[0])
    assert min(kinds[k] for k in ("add", "remove", "update", "pause", "resume", "migrate")) >= 20, kinds
