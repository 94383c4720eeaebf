"""A job without Spark is killed, has no space, or loses a part: it ends with the same results, or is refused.

These are the short forms of ``test_crash_matrix.py``, ``test_full_disk.py`` and ``test_lost_parts.py``, in
which the whole service runs.
"""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from catalog.errors import SluiceError
from tests.crash.exchanging import FILLED, LEAVES, expected, found, the_job
from tests.crash.full import FullDisk
from tests.crash.powered import Results, a_job

BATCHES = 5
ROOT = Path(__file__).parents[2]
#: A step of each kind, in the order in which a job comes to them.
STEPS = ("offset log of 0", "bucket 0 of 1", "manifest of 2", "state of 3", "commit log of 3")


def ended(root: Path) -> list[Results]:
    """Go on to the end."""
    job = a_job(root)
    try:
        job.run(BATCHES)
        return job.results()
    finally:
        job.close()


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> list[Results]:
    """Results of a job to which nothing happens."""
    return ended(tmp_path_factory.mktemp("whole"))


def test_a_process_that_is_killed_at_each_kind_of_step_goes_on(tmp_path: Path, wanted: list[Results]) -> None:
    command = [sys.executable, "-m", "tests.crash.killed_job", str(tmp_path), str(BATCHES), *STEPS]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert killed.returncode == 0, killed.stderr
    assert ended(tmp_path) == wanted


#: Around an exchange and a horizon: pairs are written, named, read by the next batch, and dropped after it.
EXCHANGING = [
    *(
        f"{step} of {n}"
        for n in (1, 2)
        for step in ("bucket 0", "bucket 1", "manifest", "state", "commit log")
    ),
    *(f"{step} of {LEAVES}" for step in ("offset log", "bucket 0", "manifest", "state")),
    *(f"{step} of {FILLED}" for step in ("offset log", "bucket 1", "manifest", "commit log")),
]


def test_pairs_on_their_way_and_horizons_outlive_a_kill_at_every_step(tmp_path: Path) -> None:
    """In batches 0 to ``FILLED - 1`` pairs set out; the last batch has nothing but these."""
    command = [sys.executable, "-m", "tests.crash.exchanging", str(tmp_path), str(FILLED + 1), *EXCHANGING]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert killed.returncode == 0, killed.stderr
    job = the_job(tmp_path)
    try:
        job.run(FILLED + 1)
        results = found(job)
        sent = [len(job.store.batches.manifests(n, n + 1)[0].exchanged) for n in range(FILLED + 1)]
    finally:
        job.close()
    assert [len(each) > 50 for each in results] == [True, True]
    assert results == expected()
    assert all(sent[:FILLED]), "pairs set out in every batch"
    assert not sent[FILLED]


def test_a_job_whose_disk_is_full_again_and_again_goes_on(tmp_path: Path, wanted: list[Results]) -> None:
    """In each life there is space for a few more writes than in the one before."""
    found, failures = None, []
    with FullDisk.watched(tmp_path) as disk:
        for writes in range(1, 200, 4):
            disk.fill_after(writes)
            try:
                found = ended(tmp_path)
                break
            except (SluiceError, OSError) as error:
                failures.append(error)
            finally:
                disk.free()
    assert found == wanted
    assert len(failures) > 5
    told = [e.errno if isinstance(e, OSError) else str(e) for e in failures]
    assert all(
        each == errno.ENOSPC or "disk is full" in str(each) or "No space left" in str(each) for each in told
    )


@contextmanager
def lost(root: Path, *patterns: str) -> Iterator[None]:
    """Take parts of a data directory away, and give them back."""
    hidden = root.with_name("hidden")
    shutil.copytree(root, hidden)
    for pattern in patterns:
        found = sorted(root.glob(pattern))
        assert found, pattern
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    yield
    shutil.rmtree(root)
    hidden.rename(root)


@pytest.mark.parametrize(
    ("patterns", "code"),
    [
        (("checkpoint/commits/2",), None),
        (("checkpoint/commits/2", "checkpoint/offsets/2"), None),
        (("results/*b000000002-*",), None),
        (("results/*b000000001-*",), "corrupt-results"),
        (("checkpoint",), "checkpoint-lost"),
        (("catalog.db*",), "catalog-missing"),
        (("checkpoint/segments/*",), "corrupt-segment"),
    ],
    ids=lambda value: value[0].replace("/", "-") if isinstance(value, tuple) else str(value),
)
def test_a_part_that_is_lost_is_made_anew_or_refused_by_name(
    patterns: tuple[str, ...], code: str | None, tmp_path: Path, wanted: list[Results]
) -> None:
    root = tmp_path / "job"
    job = a_job(root)
    job.run(3)
    job.close()
    with lost(root, *patterns):
        if code is None:
            assert ended(root) == wanted
            return
        with pytest.raises(SluiceError) as refused:
            ended(root)
        assert refused.value.code == code
    assert ended(root) == wanted
