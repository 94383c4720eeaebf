"""A cluster of Sluice: servers of others, Spark's master and workers, API processes and engines.

Engines and workers share the directory of the checkpoint, as by a mount; nothing else is shared.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any
from unittest.mock import patch

import httpx
from numba.core.caching import UserProvidedCacheLocator

from service.jvm.class_archive import packaged_home
from service.jvm.java import use_java
from tests.api.running_service import RunningService
from tests.cluster.network import Host, Network
from tests.cluster.servers import BUCKET

_KEYS = {
    "AWS_ACCESS_KEY_ID": "sluice",
    "AWS_SECRET_ACCESS_KEY": "a secret of tests",
    "AWS_REGION": "us-east-1",
}
_S3_PORT, _MASTER_PORT, _PORT = 9000, 7077, 8080
_MASTER = f"spark://master:{_MASTER_PORT}"
#: Where engines and workers have the directory that they share.
SHARED = Path("/mnt/shared")
#: Executors of an engine, which have a core each.
EXECUTORS = 2
#: Name of a host for `sluice run`.
RUNNER = "runner"
_KERNELS = Path("/mnt/home/kernels")
_REPOSITORY = Path(__file__).parents[2]
#: How long a part that was lost, or one that starts, may keep others waiting on a busy machine.
PATIENCE_S = 300.0


class Server:
    """A program of `tests.cluster.servers`."""

    def __init__(self, process: Popen[str]) -> None:
        self._process = process

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Wait until it can be used; return what it says about itself."""
        facts = json.loads(self._line())
        assert isinstance(facts, dict)
        return facts

    def tell(self, order: str) -> Any:
        """Give an order, wait until it is followed, and return what the server says."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "it has ended; see its log"
        return line


class Cluster:
    """A cluster that runs.

    Attributes:
        directory: Logs of all programs, and the disks of all hosts.
        network: The hosts.
        shared: The directory that engines and workers share.
        runs_with: Variables that any program on a host needs.
        environment: Variables of API processes, engines and workers.
        postgres: Server of the catalog.
        s3: Server of the storage.
        kafka: Brokers of topics.
        apis: API processes.
        engines: Engines by host; one is at work, the others stand by.
    """

    def __init__(self, directory: Path, net: Network, ending: ExitStack, *, engines: int) -> None:
        self.directory, self.network, self._ending = directory, net, ending
        self._engines = engines
        self.shared = directory / "shared"
        self.shared.mkdir()
        self.runs_with = {
            "NUMBA_CACHE_DIR": str(_KERNELS),
            "HOME": "/mnt/home",
            "PYTHONDONTWRITEBYTECODE": "1",
            "JAVA_HOME": str(_java_home()),
            "SPARK_HOME": str(packaged_home()),
        }
        self.environment = {
            **self.runs_with,
            **_KEYS,
            "AWS_ENDPOINT_URL": f"http://s3:{_S3_PORT}",
            "AWS_ALLOW_HTTP": "true",
            "SLUICE_STORAGE_URL": f"s3://{BUCKET}/service",
            "SLUICE_STORAGE_CACHE_DIR": "/mnt/cache",
        }
        self._spark(net.add("master"), "master.Master", "--host", "master", "--port", str(_MASTER_PORT))
        self.postgres = self._server("postgres", "10.23.0.0/24")
        self.s3 = self._server("s3", str(_S3_PORT))
        self.kafka = self._server("kafka", net.addresses["kafka"])
        catalog, _, topics = self.postgres.facts, self.s3.facts, self.kafka.facts
        url = f"postgresql+psycopg://sluice@postgres:{catalog['port']}/{catalog['database']}"
        self.environment |= {
            "PGPASSWORD": catalog["password"],
            "SLUICE_CATALOG_URL": url,
            "SLUICE_SERVERS": topics["bootstrap"],
        }
        self.apis: list[RunningService] = []
        self.engines: dict[str, RunningService] = {}

    def add_worker(self, name: str) -> Host:
        """Start a host with a worker of Spark that has room for the executors of all engines.

        So an engine that loses a worker gets executors on another one, while those of an engine that is cut
        off are still there.
        """
        host = self.network.add(name, self.shared)
        _give_kernels(host)
        cores = EXECUTORS * self._engines
        size = ("--cores", str(cores), "--memory", f"{cores}g", "--work-dir", "/mnt/work")
        self._spark(host, "worker.Worker", _MASTER, "--host", name, *size)
        return host

    def wait_for_workers(self, count: int) -> None:
        """Wait until the master knows so many workers, so that it spreads executors over them."""
        log = self.directory / "master.log"
        wait_until(
            f"{count} workers", lambda: log.read_text().count("Registering worker") >= count, self.told
        )

    def add_engine(self, name: str) -> Host:
        """Start a host that an engine can run on."""
        host = self.network.add(name, self.shared)
        _give_kernels(host)
        return host

    def engine_settings(self, host: Host) -> dict[str, str]:
        """Return the settings of an engine on a host, besides those of all programs."""
        spark = {
            "spark.driver.host": host.name,
            "spark.driver.bindAddress": "0.0.0.0",
            "spark.executor.memory": "700m",
            "spark.executor.cores": "1",
            "spark.cores.max": str(EXECUTORS),
            # A host that is cut off is given up after a minute instead of two.
            "spark.network.timeout": "60s",
            "spark.executor.heartbeatInterval": "5s",
        }
        return {
            "SLUICE_SPARK_MASTER": _MASTER,
            "SLUICE_SPARK_CONF": json.dumps(spark),
            "SPARK_LOCAL_IP": host.address,
        }

    def begin(self, part: str, name: str, **settings: str) -> RunningService:
        """Start an API process or an engine on a host of its own; enter it to wait until it is ready."""
        given = self.environment | {"SLUICE_INSECURE": "true", "SLUICE_HOST": "0.0.0.0"}
        if part == "engine":
            host = self.add_engine(name)
            given |= {"SLUICE_CHECKPOINT_DIR": str(SHARED / "checkpoint"), **self.engine_settings(host)}
        else:
            host = self.network.add(name)
            _give_kernels(host)
        started = RunningService(
            Path("/mnt/data"),
            self.directory / f"{name}.log",
            _PORT,
            settings=given | settings,
            part=part,
            below=host.below,
            reached_at=self.network.relay(host, _PORT),
        )
        started.http.timeout = httpx.Timeout(PATIENCE_S)
        self._ending.callback(started.stop)
        if part == "api":
            self.apis.append(started)
        else:
            self.engines[name] = started
        return started

    def told(self) -> str:
        """Return the ends of all logs."""
        logs = [*self.directory.glob("*.log"), *self.directory.glob("*/data/spark.log")]
        logs += self.directory.glob("*/work/*/*/stderr")
        ends = [
            (log.relative_to(self.directory), log.read_text(errors="replace")[-2500:]) for log in sorted(logs)
        ]
        return "\n".join(f"{name}:\n{text}" for name, text in ends)

    def _server(self, name: str, *arguments: str) -> Server:
        host = self.network.add(name)
        command = [sys.executable, "-m", "tests.cluster.servers", name, *arguments]
        environment = {"PYTHONPATH": str(_REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"} | _KEYS
        return Server(self.network.start(host, command, environment, stdin=PIPE, stdout=PIPE, text=True))

    def _spark(self, host: Host, kind: str, *arguments: str) -> None:
        program = [str(packaged_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        environment = self.environment | {"SPARK_LOCAL_IP": host.address, "SPARK_DAEMON_MEMORY": "256m"}
        self.network.start(host, [*program, *arguments, "--webui-port", "0"], environment)


@contextmanager
def cluster(directory: Path, *, workers: int = 2, engines: int = 1, apis: int = 1) -> Iterator[Cluster]:
    """Yield a cluster whose API processes and engines are ready; all of it ends with the block."""
    parts = [("api", f"api{n}") for n in range(1, apis + 1)]
    parts += [("engine", f"engine{n}") for n in range(1, engines + 1)]
    others = ("postgres", "s3", "kafka", "master", RUNNER)
    names = [*others, *(f"worker{n}" for n in range(1, 10)), *(n for _, n in parts)]
    with Network(directory, names) as net, ExitStack() as ending:
        made = Cluster(directory, net, ending, engines=max(engines, 1))
        for n in range(1, workers + 1):
            made.add_worker(f"worker{n}")
        made.wait_for_workers(workers)
        started = [made.begin(part, name) for part, name in parts]
        for service in started:
            service.__enter__()
        yield made


def wait_until(
    what: str, done: Callable[[], bool], told: Callable[[], str], seconds: float = PATIENCE_S
) -> float:
    """Wait for something; return for how long, s."""
    began_s = time.monotonic()
    while not done():
        assert time.monotonic() - began_s < seconds, f"{what}\n{told()}"
        time.sleep(0.1)
    return time.monotonic() - began_s


def _java_home() -> Path:
    """Return the home of Java, which this process itself need not know."""
    with patch.dict(os.environ):
        return use_java()


def _give_kernels(host: Host) -> None:
    """Give a host the kernels that are compiled already: its own view of the application is read-only."""
    for compiled in _REPOSITORY.glob("operators/*/__pycache__/*.nb[ic]"):
        source = compiled.parents[1] / f"{compiled.name.partition('.')[0]}.py"
        below = UserProvidedCacheLocator.get_suitable_cache_subpath(str(source))
        there = host.disk / "home" / "kernels" / below
        there.mkdir(parents=True, exist_ok=True)
        (there / compiled.name).write_bytes(compiled.read_bytes())
