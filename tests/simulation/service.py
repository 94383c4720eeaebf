"""The lives of a simulated service: it starts, dies, loses the ends of Spark's logs and moves."""

from __future__ import annotations

import itertools
from pathlib import Path
from random import Random
from typing import Any

import pytest

from catalog.values.plan import Strategy
from service.checkpoint.spark_log import SparkLog
from service.commit.upkeep.pruning import Pruner
from service.commit.upkeep.retention import ResultRetention
from service.config.data_dir import DataDir
from service.config.settings import load_settings
from service.config.storage import Storage
from service.errors import DataDirMoved
from service.inputs.inputs import Inputs
from service.recovery.moving.move import Place, move
from service.recovery.opening import open_catalog
from service.results.results import ResultReader
from service.sinks.delivery import Delivery
from service.workspace.input_retention import InputRetention
from service.workspace.watcher import Watcher
from service.workspace.workspace import Workspace
from tests.simulation.death import Death, Died
from tests.simulation.spark import SimulatedSpark, read_manifests

STRATEGIES: tuple[Strategy, ...] = ("mem-opt", "cpu-opt", "unshared", "pullup", "pushdown")


class SimulatedService:
    """A service without Spark, from its first start on.

    Args:
        directory: Its first data directory, with an empty catalog.
        rng: Chooses the settings, and what happens at each start and move.
        death: Watches the directory.
        history: Takes what happens to it.

    Attributes:
        delivery: Delivers results to sinks.
        watcher: Does the periodic work.
    """

    def __init__(self, directory: Path, rng: Random, death: Death, history: list[str]) -> None:
        self.rng, self.death, self.history = rng, death, history
        self.directory = directory
        self.options: dict[str, Any] = {
            "data_dir": directory,
            "buckets": rng.choice((1, 2, 3)),
            "strategy": rng.choice(STRATEGIES),
            "result_retention": rng.choice(("forever", "forever", "20s")),
            "rows_file_kb": rng.choice((0, 1)),
        }
        self.settings = load_settings(**self.options)
        self.delivery: Delivery
        self.watcher: Watcher
        self._moves = itertools.count(1)
        self._ahead = rng.random() < 0.8
        self._jobs = 0
        # The newest batch that Spark has ever begun.
        self._begun = -1
        self._job: SimulatedSpark | None = None
        self._workspace: Workspace | None = None

    @property
    def workspace(self) -> Workspace:
        """The service itself, while it lives."""
        assert self._workspace is not None
        return self._workspace

    def start(self) -> None:
        """Start the service, and its job, however often it dies meanwhile."""
        while True:
            self.death.revive()
            if self.rng.random() < 0.1:
                self.death.left = self.rng.randrange(12)
            try:
                self._open()
                self._start_job()
            except Died:
                self.close()
                continue
            self.death.revive()
            return

    def _open(self) -> None:
        if self._workspace is not None:
            return
        workspace = Workspace(self.settings)
        workspace.open()
        self._workspace = workspace
        store = workspace._store
        known: dict[int, set[str]] = {}
        lock = str(workspace.data_dir.engine_lock)
        results = ResultReader(store, workspace.data_dir.results, spill_dir=workspace.data_dir.spill)
        self.delivery = Delivery(store, results, workspace.data_dir.exports, lock)
        retained = ResultRetention(
            store,
            workspace.data_dir.results,
            workspace.data_dir.late,
            self.settings.results.retention_us,
            lock,
            needed_from=store.sinks.oldest_needed_batch,
            interval_s=0,
            unlink_after_s=self.rng.choice((0, 5)),
            thin_interval_s=0,
        )
        inputs = InputRetention(
            store,
            workspace._events,
            known,
            interval_s=0,
            files_interval_s=0,
            gone_s=0,
            sample_rows=self.rng.choice((0, 3)),
        )
        self.watcher = Watcher(
            store,
            Inputs(store, workspace._events),
            0.0,
            ticks=(
                workspace.migrations.tick,
                Pruner(store, interval_s=0, grace_s=0).run_once,
                retained.run_once,
                inputs.run_once,
            ),
            known=known,
        )

    def _start_job(self) -> None:
        store, data_dir = self.workspace._store, self.workspace.data_dir
        unsynced = self._jobs > 0 and self.rng.random() < 0.3
        self._jobs += 1
        if unsynced:
            self._lose_log_ends()
        self._job = SimulatedSpark(self.settings, data_dir, store, self.rng, self._ahead, unsynced)

    def _lose_log_ends(self) -> None:
        """Lose the ends of Spark's logs, so that up to two batches of the catalog are missing there.

        Once a further batch has begun only one can be: the commit of the last one has synced what Spark had
        written of those before it. An earlier loss may have taken the entry of the further batch.
        """
        log, last = SparkLog(self.workspace.data_dir.checkpoint), self.workspace._store.batches.last()
        following = (-1 if last is None else last) + 1
        first_lost = following - self.rng.choice((0, 1) if self._begun >= following else (0, 1, 2))
        if first_lost < 1:
            return
        self.history.append(f"log lost from batch {first_lost}")
        begun_too = self.rng.random() < 0.5
        first = first_lost + log.ahead()
        for directory in (log.commits, log.offsets) if begun_too else (log.commits,):
            for entry in directory.glob("*"):
                if int(entry.name) >= first:
                    entry.unlink()

    def die(self, whole: bool) -> None:
        """Die: as a whole, or the JVM and its workers, while the engine goes on."""
        self.death.revive()
        if whole:
            self.close()
        elif self._job is not None:
            self._job.close()
            self._job = None

    def close(self) -> None:
        """Let go of everything that a death takes with it."""
        if self._job is not None:
            self._job.close()
            self._job = None
        if self._workspace is not None:
            self.delivery.close()
            self._workspace.close_catalog()
            self._workspace = None

    def batch(self) -> bool:
        """Run a batch; return whether there was anything to do."""
        assert self._job is not None
        try:
            return self._job.step()
        finally:
            log = SparkLog(self.workspace.data_dir.checkpoint)
            entries = [int(entry.name) for entry in log.offsets.glob("*")]
            self._begun = max(self._begun, max(entries, default=0) - log.ahead())

    def move(self) -> None:
        """Move to another directory and start there, however often the moving process dies meanwhile."""
        rng = self.rng
        self.close()
        root = self.directory.with_name(f"{self.directory.name}-{next(self._moves)}")
        apart = rng.choice((None, f"file://{root}-apart"))
        buckets = rng.choice((None, 1, 2, 3, 5))
        options = self.options | {"data_dir": root, "storage_url": apart}
        options["buckets"] = buckets or self.options["buckets"]
        settings = load_settings(**options)
        died = False
        while True:
            self.death.revive()
            self.death.left = rng.randrange(60) if rng.random() < 0.5 else None
            try:
                self._move_to(root, settings.storage.apart, buckets)
            except Died:
                died = True
                self.history.append("died moving")
                self.death.revive()
                if rng.random() < 0.3 and self._starts():
                    break
                continue
            self.options, self.settings = options, settings
            break
        self.death.revive()
        assert self._starts()
        assert died or not (root / "move.json").exists()
        self.start()

    def _move_to(self, root: Path, apart: Storage | None, buckets: int | None) -> None:
        source = Place(self.settings.storage.open_data_dir(), None)
        target = Place(DataDir(root, storage=apart), None)
        with open_catalog(source.data_dir, moved_to=root) as store:
            move(store, source, target, buckets, read_manifests)
        with pytest.raises(DataDirMoved):
            open_catalog(source.data_dir)

    def _starts(self) -> bool:
        """Return whether the service may start where it was last."""
        try:
            open_catalog(self.settings.storage.open_data_dir()).close()
        except DataDirMoved:
            return False
        return True
