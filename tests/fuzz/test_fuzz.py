"""Bad input is refused in Sluice's own words, whatever it is: coverage-guided, by Atheris."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.operators.pack.test_payload import a_payload

pytest.importorskip("atheris", reason="Atheris has wheels for Linux and some versions of Python alone")

TARGETS = ("cql", "events", "payload")
REPOSITORY = Path(__file__).parents[2]
_GOLDEN = REPOSITORY / "tests" / "planner" / "golden" / "bind"

_EVENTS = (
    b'[{"ts": "2026-01-01T00:00:00Z", "b": true, "i": 1, "l": -1, "x": 1.5, "s": "a", "d": "2013-01-31"}]',
    b'[{"ts": 1, "t": 2, "m": "1.25", "n": "0.1"}, {"ts": "2026-01-01 05:00:00+02:00", "x": "NaN"}]',
    b'{"ts": 1}\n{"ts": 2, "s": "\\u00e9\\ud83d\\ude00"}\n',
)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_found_in_some_inputs(target: str, tmp_path: Path) -> None:
    fuzz(target, tmp_path, runs=75, seeds_taken=20)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_found_in_ten_minutes(target: str, tmp_path: Path, chosen_seed: int) -> None:
    done = fuzz(target, tmp_path, seconds=600, seed=chosen_seed or 1)
    assert done >= 20_000


def fuzz(
    target: str,
    directory: Path,
    *,
    runs: int = -1,
    seconds: int = 0,
    seed: int = 1,
    seeds_taken: int = 10_000,
) -> int:
    """Fuzz a target and return how many inputs it was given; the same ones for the same runs and seed.

    What is found is in the message, as the bytes that do it again.

    Args:
        target: The target.
        directory: An empty directory for the inputs that are kept.
        runs: Inputs to give it; -1: as many as the time allows.
        seconds: Time that it may take, in s; 0: as long as the runs take.
        seed: Seed of the inputs, above 0: the fuzzer draws its own one for 0.
        seeds_taken: Good inputs to begin with, at most; they are spread over all there are.
    """
    corpus, found = directory / "corpus", directory / "found"
    corpus.mkdir()
    found.mkdir()
    good_ones = seeds(target)
    for number, good in enumerate(good_ones[:: -(-len(good_ones) // seeds_taken)]):
        (corpus / f"seed_{number}").write_bytes(good)
    command = [sys.executable, "-m", "tests.fuzz.targets", target, str(corpus)]
    limits = [f"-runs={runs}", f"-max_total_time={seconds}", f"-seed={seed}", "-max_len=4096"]
    done = subprocess.run(
        [*command, *limits, f"-artifact_prefix={found}/"],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        errors="replace",
    )
    culprits = {path.name: path.read_bytes() for path in found.iterdir()}
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}\n{culprits}"
    given = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
    assert given is not None, done.stderr[-3000:]
    return int(given[1])


def seeds(target: str) -> list[bytes]:
    """Return good inputs of a target."""
    if target == "events":
        return list(_EVENTS)
    if target == "payload":
        return [a_payload().encode()]
    return [
        case.split("\n----")[0].encode()
        for path in sorted(_GOLDEN.glob("*.txt"))
        for case in path.read_text().split("\n\n")
    ]
