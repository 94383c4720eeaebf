"""A service dies when a sink has its file and the catalog does not know it yet: the file is written again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from catalog.store.store import Store
from catalog.values.sink import FilesSink
from service.results.results import ResultReader
from service.sinks.deliverer import Deliverer
from service.sinks.delivery import Delivery
from tests.crash.killing import failpoint
from tests.service.sinks.world import World

SINK = FilesSink("alerts", "parquet")

DELIVER = """
import sys
from pathlib import Path
from tests.crash.test_sink_failpoint import deliver_all
deliver_all(Path(sys.argv[1]))
"""


def deliver_all(directory: Path) -> None:
    """Deliver what a catalog has, in a process that a failpoint may end."""
    lock = directory / "engine.lock"
    lock.write_text(json.dumps({"pid": os.getpid(), "jvm_pid": os.getpid()}))
    with Store.open(f"sqlite:///{directory / 'catalog.db'}") as store:
        reader = ResultReader(store, directory / "results", spill_dir=directory / "spill")
        deliverer = Deliverer(store, Delivery(store, reader, directory / "exports", str(lock)))
        deliverer.start()
        while store.sinks.pending():
            threading.Event().wait(0.02)
        deliverer.stop()


@pytest.mark.slow
def test_killed_between_file_and_progress(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.set_sink(SINK)
        for rows in (3, 0, 5, 2):
            world.commit(rows)
        directory = tmp_path / "exports" / "alerts"
        killed(tmp_path, at=2)
        before = contents(directory)
        assert sorted(before) == ["batch-000000000-q1.parquet", "batch-000000002-q1.parquet"]
        assert (world.present().next_batch, world.present().rows) == (0, 0)

        subprocess.run(delivering(tmp_path), check=True, timeout=120)
        after = contents(directory)
        assert sorted(after) == [*sorted(before), "batch-000000003-q1.parquet"]
        for name, (content, inode) in before.items():
            assert after[name][0] == content
            assert after[name][1] != inode, "it was written again, with the same bytes"
        assert world.files(SINK) == world.by_batch()
        assert (world.present().pending, world.present().rows, world.present().batches) == (0, 10, 3)


@pytest.mark.slow
def test_a_file_of_several_batches_is_repeated_though_more_of_them_wait(tmp_path: Path) -> None:
    sink = FilesSink("alerts", "parquet", batches_per_file=3)
    with World(tmp_path) as world:
        world.set_sink(sink)
        for rows in (3, 0, 5):
            world.commit(rows)
        killed(tmp_path, at=0)
        before = contents(tmp_path / "exports" / "alerts")
        assert sorted(before) == ["batch-000000000-000000002-q1.parquet"]
        assert (world.present().next_batch, world.present().file_end) == (0, 2)
        world.commit(2)

        subprocess.run(delivering(tmp_path), check=True, timeout=120)
        after = contents(tmp_path / "exports" / "alerts")
        assert sorted(after) == [*before, "batch-000000003-000000003-q1.parquet"]
        assert all(after[name][0] == content for name, (content, _) in before.items())
        assert world.all_rows(sink) == [row for rows in world.by_batch().values() for row in rows]
        assert (world.present().pending, world.present().rows, world.present().batches) == (0, 10, 3)


def delivering(directory: Path) -> list[str]:
    return [sys.executable, "-c", DELIVER, str(directory)]


def killed(directory: Path, at: int) -> None:
    """Deliver until the process dies after the file that begins with a batch."""
    env = os.environ | failpoint("after-sink-file", at)
    died = subprocess.run(delivering(directory), env=env, check=False, timeout=120)
    assert died.returncode == -signal.SIGKILL


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and inode of each file."""
    return {path.name: (path.read_bytes(), path.stat().st_ino) for path in directory.iterdir()}
