"""The Python process alone or the JVM alone is killed, and the run started again at once.

The survivor must not write: results equal the oracle's, and no process of the first run outlives the second.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from tests.crash.killing import SIZE, is_running, kill, wait_for_commit
from tests.oracle import Oracle
from tests.sluice_run import assert_equals_oracle, finish, start
from tests.workloads import make_workload

Victim = Literal["python", "jvm"]


def kill_one_then_finish(directory: Path, victim: Victim, batch: int, seed: int) -> None:
    spec, files = make_workload(seed, directory, SIZE)
    workload, out = directory / "WORKLOAD.yaml", directory / "out"
    first = start(workload, out)
    engine = wait_for_commit(first, out, batch)
    kill(engine.pid if victim == "python" else engine.jvm_pid)
    outcome = finish(start(workload, out))
    ended = finish(first, timeout_s=60)
    assert ended.returncode != 0
    if victim == "jvm":
        assert "Traceback" not in ended.stderr
        assert ended.stderr.splitlines()[-1] == "  detail: The JVM has gone."
    assert_equals_oracle(outcome, out, Oracle(spec, files), "per-query")
    assert not is_running(engine.pid)
    assert not is_running(engine.jvm_pid)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("victim", ["python", pytest.param("jvm", marks=pytest.mark.slow)])
def test_one_process_killed_and_restarted_at_once(victim: Victim, tmp_path: Path) -> None:
    kill_one_then_finish(tmp_path, victim, 2, seed=6)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("victim", ["python", "jvm"])
@pytest.mark.parametrize("seed", [2, 3, 9, 11])
def test_one_process_killed_anywhere(victim: Victim, seed: int, tmp_path: Path) -> None:
    kill_one_then_finish(tmp_path, victim, int(np.random.default_rng(seed).integers(0, 5)), seed)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", [2, 3, 6])
def test_everything_killed_five_times(seed: int, tmp_path: Path) -> None:
    spec, files = make_workload(seed, tmp_path, SIZE)
    workload, out = tmp_path / "WORKLOAD.yaml", tmp_path / "out"
    for batch in range(5):
        process = start(workload, out)
        engine = wait_for_commit(process, out, batch)
        kill(engine.pid)
        kill(engine.jvm_pid)
        finish(process, timeout_s=60)
    outcome = finish(start(workload, out))
    assert_equals_oracle(outcome, out, Oracle(spec, files), "per-query")
