"""A service under load whose processes are killed, one or all, at a step of a batch or at any moment.

    engine ─┬─ JVM
            └─ fork server ─┬─ source process            asked for offsets and partitions
                            └─ worker daemon ── workers  read, pack, join

Whoever dies, the others go on or go with it; where the engine lives it starts the job again by itself, else
the service is started again. A client posts meanwhile, and sends again what was not acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, Self, get_args

import psutil

from catalog.errors import SluiceError
from catalog.store.store import Store
from tests.api.running_service import RunningService, free_port
from tests.crash.killing import kill
from tests.crash.posting import (
    STOPPED_S,
    Client,
    add_streams_and_query,
    expected,
    results,
    wait_for_rows,
)
from tests.waiting import until

Victim = Literal["worker", "source", "jvm", "engine", "all"]
VICTIMS: tuple[Victim, ...] = get_args(Victim)

#: Names of processes, which Linux cuts after 15 bytes.
_WORKER, _SOURCE, _JVM = "worker_daemon", "python_streamin", "java"
#: Requests after the last kill.
_MORE = 60
#: How long a service may need to go on: after several failures it waits for up to a minute before it tries.
_RECOVERED_S = 600.0
_STEP_S = 0.05


class Attacked:
    """A service with a client that posts; a context manager that ends both.

    Args:
        directory: Where everything is kept.
        described: What to say where a check fails, such as the seed.
    """

    def __init__(self, directory: Path, described: str) -> None:
        self.data_dir = directory / "data"
        self._directory, self._port = directory, free_port()
        self._described = described
        self._lives = 0
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        self._start()
        add_streams_and_query(self.service, wait_s=0)
        self.client = Client(self.service.root)
        self.client.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def strike(self, victim: Victim) -> None:
        """Kill a process of a kind, or all; where there is none of a kind yet, the one that it comes from."""
        for pid in self._pids(victim):
            kill(pid)

    def recover(self, victim: Victim) -> None:
        """Start the service again, if it was killed."""
        if victim in ("engine", "all"):
            self.service.process.wait(STOPPED_S)
            self._ending.close()
            self._start()

    def wait_for_batches(self, batch: int) -> None:
        """Wait until the batch after ``batch`` is committed."""
        told = f"no batch came after {batch}"
        until(lambda: self.last_batch() > batch, lambda: self.told(told), _RECOVERED_S)

    def last_batch(self) -> int:
        """Return the last committed batch; -1 where there is none."""
        try:
            with Store.open(f"sqlite:///{self.data_dir / 'catalog.db'}", migrate=False) as store:
                last = store.batches.last()
        except SluiceError as error:
            raise AssertionError(self.told(str(error))) from error
        return -1 if last is None else last

    def check(self) -> None:
        """Let the client end, and compare all results with DuckDB's of what was acknowledged."""
        self.client.finish(_MORE)
        wait_for_rows(self.service, sum(map(len, self.client.sent.values())))
        found = sorted(results(self.service))
        assert found == expected(self.client.sent), self.told("other results")

    def told(self, what: str) -> str:
        """Return what went wrong, in which run, and the end of its log."""
        return f"{what} ({self._described}):\n{self.service.log.read_text()[-4000:]}"

    def _start(self) -> None:
        self._lives += 1
        log = self._directory / f"log{self._lives}.txt"
        self.service = self._ending.enter_context(RunningService(self.data_dir, log, self._port))

    def _pids(self, victim: Victim) -> Sequence[int]:
        engine = psutil.Process(self.service.process.pid)
        if victim == "engine":
            return (engine.pid,)
        below = sorted(engine.children(recursive=True), key=lambda process: process.pid)
        if victim == "all":
            return (engine.pid, *(process.pid for process in below))
        name = {"worker": _WORKER, "source": _SOURCE, "jvm": _JVM}[victim]
        found = [process.pid for process in below if _name(process) == name]
        # Of the processes of that name all but the first, the daemon, are workers.
        return found[-1:] if victim == "worker" else found


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""
