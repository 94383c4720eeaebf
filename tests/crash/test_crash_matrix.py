"""Whichever process of a service is killed, at each durable step or at any moment: each event counts once.

The expected results are DuckDB's over the events that the service has acknowledged.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from service.commit.failpoints import VARIABLE
from tests.crash.killing import POINTS
from tests.crash.victims import VICTIMS, Attacked, Victim
from tests.waiting import until

#: Steps that our code passes, in the order of a batch.
STEPS = tuple(point for point in POINTS if point != "before-commit-log")
#: Batches between two deaths of a service, so that it goes on for a while after each.
BATCHES_BETWEEN = 8
MOMENTS = 10
#: How long a service may take to the next step.
REACHED_S = 600.0


def killed_at_steps(directory: Path, victim: Victim, steps: dict[str, int]) -> None:
    """Kill a process whenever a service is at one of the steps, in their batches."""
    with Attacked(directory, f"{victim} at {steps}") as attacked:
        for step, batch in steps.items():
            mark = attacked.data_dir / f"failpoint-{step}-{batch}"
            told = f"{step} of batch {batch} was not reached"
            until(mark.exists, partial(attacked.told, told), REACHED_S)
            attacked.strike(victim)
            mark.with_suffix(".passed").touch()
            attacked.recover(victim)
            attacked.wait_for_batches(batch)
        attacked.check()


def killed_at_moments(directory: Path, seed: int, victims: tuple[Victim, ...]) -> None:
    """Kill one process after another: the first in or before batch 0, some while others recover."""
    print(f"moments of seed {seed}: {victims}")
    rng = np.random.default_rng(seed)
    with Attacked(directory, f"seed {seed}") as attacked:
        for number, victim in enumerate(victims):
            before = attacked.last_batch()
            if number and rng.random() < 0.8:
                attacked.wait_for_batches(before)
            time.sleep(rng.uniform(0, 1.5))
            attacked.strike(victim)
            attacked.recover(victim)
        attacked.check()


@pytest.mark.slow
@pytest.mark.spark
def test_processes_killed_at_two_moments(tmp_path: Path) -> None:
    killed_at_moments(tmp_path, 1, ("worker", "all"))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_process_killed_at_every_step(
    victim: Victim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = VICTIMS.index(victim)
    order = STEPS[first:] + STEPS[:first]
    steps = {step: number * BATCHES_BETWEEN for number, step in enumerate(order)}
    monkeypatch.setenv(VARIABLE, ",".join(f"{step}@{batch}:wait" for step, batch in steps.items()))
    killed_at_steps(tmp_path, victim, steps)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("service", range(10))
def test_processes_killed_at_random_moments(service: int, tmp_path: Path, chosen_seed: int) -> None:
    rng = np.random.default_rng((chosen_seed, service))
    victims = tuple(VICTIMS[n] for n in rng.integers(0, len(VICTIMS), MOMENTS))
    killed_at_moments(tmp_path, int(rng.integers(2**32)), victims)
