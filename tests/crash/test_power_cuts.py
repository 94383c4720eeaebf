"""Power fails after any step of a batch: what comes up again goes on and ends with the same results."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from catalog.errors import SluiceError
from tests.crash.powered import Disk, Results, a_job

BATCHES = 5
KINDS = ("kept", "empty", "any", "any", "any")


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> list[Results]:
    """Results of a job without a failure."""
    job = a_job(tmp_path_factory.mktemp("uncut"))
    job.run(BATCHES)
    found = job.results()
    job.close()
    assert len(found) == BATCHES
    assert sum(map(len, found)) > 100
    return found


def steps_not_recovered_from(
    root: Path, wanted: list[Results], disk: Disk, kinds: tuple[str, ...], steps: int = 1
) -> list[str]:
    """Run a job whose power is cut after its steps, and go on after each cut to the end.

    Args:
        root: Directory for the job and its cuts.
        wanted: Results of a job that nothing happens to.
        disk: The job's disk.
        kinds: What a cut does to what is not synced.
        steps: Every how many steps there is a cut.

    Returns:
        After which steps, and how cut, the job ended with other results or could not go on.
    """
    wrong, reached = [], 0

    def cut(step: str) -> None:
        nonlocal reached
        reached += 1
        for kind in kinds if reached % steps == 0 else ():
            left = root / "cut"
            disk.cut(left, kind)
            try:
                found = recovered(left)
            except SluiceError as refused:
                wrong.append(f"{step}, {kind}: {refused}")
            else:
                if found != wanted:
                    wrong.append(f"{step}, {kind}: other results")
            shutil.rmtree(left)

    job = a_job(disk.root, cut)
    job.run(BATCHES)
    assert job.results() == wanted
    job.close()
    assert reached == BATCHES * 6
    return wrong


def recovered(directory: Path) -> list[Results]:
    """Go on after a cut to the end."""
    job = a_job(directory)
    try:
        job.run(BATCHES)
        return job.results()
    finally:
        job.close()


@pytest.mark.parametrize(
    ("kinds", "steps"),
    [
        pytest.param(("lost",), 6, id="short"),
        pytest.param(("lost", *KINDS), 1, id="long", marks=pytest.mark.slow),
    ],
)
def test_every_cut_is_recovered_from(
    kinds: tuple[str, ...], steps: int, tmp_path: Path, wanted: list[Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path / "job")
    disk.watch(monkeypatch)
    assert steps_not_recovered_from(tmp_path, wanted, disk, kinds, steps) == []


def test_without_the_sync_some_cut_is_refused(tmp_path: Path, wanted: list[Results]) -> None:
    """The test above can fail: the same on a disk to which nothing is synced."""
    wrong = steps_not_recovered_from(tmp_path, wanted, Disk(tmp_path / "job"), ("lost",), steps=5)
    assert wrong
    assert all("other results" not in step for step in wrong)
