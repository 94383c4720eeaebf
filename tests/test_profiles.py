"""Hypothesis profiles: `make test` draws the same examples every time, `make test-slow` new ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

DRAWS = """
from hypothesis import given
from tests.operators.cases import SETTINGS
from tests.planner.cql_rewrites import TREE

@SETTINGS
@given(tree=TREE)
def test_prints_its_examples(tree):
    print("drawn", tree)
"""


def drawn(directory: Path, hash_seed: str, *options: str) -> list[str]:
    """Return the examples that a run of pytest draws."""
    (directory / "test_draws.py").write_text(DRAWS)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    run = subprocess.run(
        [*command, "-c", os.devnull, "--rootdir", str(directory), *options, str(directory)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return [line for line in run.stdout.splitlines() if line.startswith("drawn")]


def test_the_profile_draws_the_same_examples_every_time() -> None:
    profile = settings.get_profile("repeatable")
    assert (profile.derandomize, profile.database, profile.deadline) == (True, None, None)


@pytest.mark.slow
def test_examples_are_the_same_every_time(tmp_path: Path) -> None:
    examples = drawn(tmp_path, "1")
    assert len(examples) > 50
    assert drawn(tmp_path, "2") == examples


@pytest.mark.slow
def test_exploring_draws_other_examples_and_repeats_them_by_seed(tmp_path: Path) -> None:
    explored = drawn(tmp_path, "1", "--hypothesis-profile=explore", "--hypothesis-seed=7")
    assert explored != drawn(tmp_path, "1")
    assert explored == drawn(tmp_path, "2", "--hypothesis-profile=explore", "--hypothesis-seed=7")
