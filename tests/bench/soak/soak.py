"""One soak: the service, its load, readers, visitors and sampler, until everything posted has been read."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.api.running_service import RunningService, default_settings, free_port
from tests.bench.peers.feeding import Worker
from tests.bench.soak.queries import STANDING
from tests.bench.soak.readers import EventFollower, PageFollower, Sweeper
from tests.bench.soak.rows import COLUMNS, LATENESS, STREAMS, SoakRows
from tests.bench.soak.sampler import Sampler
from tests.bench.soak.visitors import Visitors
from tests.waiting import until

#: Queries whose latency is measured: a small window, a large one, and one by server-sent events.
PAGED, EVENTS = ("standing2", "standing20"), "standing12"
FOLLOWED = (*PAGED, EVENTS)
#: Until the first row is posted; the load process starts meanwhile.
_HEAD_START_S = 3.0
#: How long the service may take for what is left when the load ends.
_REST_S = 300.0
_STARTED_S = 120.0


@dataclass(frozen=True, slots=True)
class SoakSetting:
    """A soak.

    Attributes:
        duration_s: How long rows are posted.
        rate_per_s: Rows of each stream per second.
        change_every_s: Between two changes of queries.
        retention: How long results are kept.
        seed: Of the visitors.
    """

    duration_s: int = 3600
    rate_per_s: int = 10_000
    change_every_s: float = 5.0
    retention: str = "10m"
    seed: int = 61


@dataclass(frozen=True, slots=True)
class Soaked:
    """A soak that was carried through; its directory has all else.

    Attributes:
        setting: What it was.
        start_us: Event time and wall clock of the first row, µs UTC.
        began: When it began, UTC.
    """

    setting: SoakSetting
    start_us: int
    began: str

    @property
    def rows(self) -> SoakRows:
        """The rows that were posted."""
        return SoakRows(self.start_us, self.setting.rate_per_s)


def soak(setting: SoakSetting, directory: Path) -> Soaked:
    """Run the service under load and record everything.

    Args:
        setting: What to do.
        directory: An empty one, for the data of the service and for what is recorded.

    Raises:
        RuntimeError: Somebody who posts, reads or changes queries was refused.
        AssertionError: The service did not get done with what was posted.
    """
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "serve.log"
    settings = default_settings(log) | {"SLUICE_RESULT_RETENTION": setting.retention}
    with RunningService(directory / "data", log, free_port(), settings=settings) as service:
        service.register(COLUMNS, *STREAMS, lateness=LATENESS)
        added = [{"add": {"name": name, "cql": query.cql()}} for name, query in STANDING.items()]
        service.ok("POST", f"/changes?wait={_STARTED_S:.0f}", 200, json={"changes": added})
        start_us = round((time.time() + _HEAD_START_S) * 1e6)
        began = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        _under_load(setting, directory, service, start_us)
    soaked = Soaked(setting, start_us, began)
    (directory / "soak.json").write_text(json.dumps(asdict(soaked)), encoding="utf-8")
    return soaked


def read_soaked(directory: Path) -> Soaked:
    """Return a soak that was carried through in a directory."""
    document = json.loads((directory / "soak.json").read_text(encoding="utf-8"))
    return Soaked(**document | {"setting": SoakSetting(**document["setting"])})


def visits_file(directory: Path) -> Path:
    """Return the file with the phases of the visitors."""
    return directory / "visits.json"


def _under_load(setting: SoakSetting, directory: Path, service: RunningService, start_us: int) -> None:
    root = f"{service.root}/api/v1"
    visitors = Visitors(root, setting.change_every_s, setting.seed)
    swept = [name for name in STANDING if name not in FOLLOWED]
    with ExitStack() as stack:
        # Those entered first are stopped last: they see the end of the input.
        sampler = stack.enter_context(Sampler(service.process.pid, service.data_dir, directory))
        workers = [
            *(PageFollower(root, directory, name) for name in PAGED),
            EventFollower(root, directory, EVENTS),
            Sweeper(root, directory, swept, visitors.snapshot),
        ]
        for worker in workers:
            stack.enter_context(worker)
        with visitors:
            _load(setting, directory, root, start_us, [sampler, visitors, *workers])
        visitors.save(visits_file(directory))
        total = len(STREAMS) * setting.rate_per_s * setting.duration_s
        until(
            lambda: service.ok("GET", "/statistics", 200)["input_rows"] >= total,
            lambda: f"{total:,} rows were not read",
            _REST_S,
        )


def _load(setting: SoakSetting, directory: Path, root: str, start_us: int, others: Sequence[Worker]) -> None:
    """Run the load process to its end, as long as nobody else has failed."""
    arguments = (root, directory, start_us, setting.rate_per_s, setting.duration_s)
    command = [sys.executable, "-m", "tests.bench.soak.load", *map(str, arguments)]
    process = subprocess.Popen(command)
    try:
        while process.poll() is None:
            for other in others:
                other.check()
            time.sleep(1.0)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if process.returncode:
        raise RuntimeError(f"the load process ended with status {process.returncode}")
