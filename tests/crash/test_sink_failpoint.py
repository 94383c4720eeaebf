"""A service dies when a sink has its file and the catalog does not know it yet: the file is written again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

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


def test_killed_between_file_and_progress(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.set_sink(SINK)
        for rows in (3, 0, 5, 2):
            world.commit(rows)
        run = [sys.executable, "-c", DELIVER, str(tmp_path)]
        died = subprocess.run(run, env=os.environ | failpoint("after-sink-file", 2), check=False, timeout=120)
        assert died.returncode == -signal.SIGKILL
        directory = tmp_path / "exports" / "alerts"
        before = {path.name: (path.read_bytes(), path.stat().st_ino) for path in directory.iterdir()}
        assert sorted(before) == ["batch-000000000-q1.parquet", "batch-000000002-q1.parquet"]
        assert (world.present().next_batch, world.present().rows) == (1, 3)

        subprocess.run(run, check=True, timeout=120)
        after = {path.name: (path.read_bytes(), path.stat().st_ino) for path in directory.iterdir()}
        names = ["batch-000000000-q1.parquet", "batch-000000002-q1.parquet", "batch-000000003-q1.parquet"]
        assert sorted(after) == names
        assert after[names[0]] == before[names[0]], "it was known to be there"
        assert after[names[1]][0] == before[names[1]][0]
        assert after[names[1]][1] != before[names[1]][1], "it was written again, with the same bytes"
        assert world.files(SINK) == world.by_batch()
        assert (world.present().pending, world.present().rows, world.present().batches) == (0, 10, 3)
