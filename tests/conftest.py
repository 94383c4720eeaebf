from __future__ import annotations

import gc
import itertools
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.util import Finalize
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from catalog.store.store import Store
from tests import namespaces
from tests import s3 as s3_server
from tests.empty_catalog import prepared
from tests.leftovers import Leftovers
from tests.postgres import PostgresServer, server
from tests.sluice_run import Command

# Examples have no deadline: how long one takes depends on who else uses the machine. `make test` runs the
# same examples every time; `make test-slow` looks for others (``--hypothesis-profile=explore``) and prints
# its seed. What it finds becomes an ``@example``. Nothing is left to Hypothesis, which has other defaults
# where it finds itself in CI.
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile("explore", deadline=None, derandomize=False, database=None, print_blob=True)
settings.load_profile("repeatable")


_LEFTOVERS = pytest.StashKey[Leftovers]()
_TEMPORARY = pytest.StashKey[Path]()
#: Fixtures that start a server in a process or in threads of its own.
_SERVERS = frozenset({"postgres", "s3_of_session", "kafka"})


def pytest_configure(config: pytest.Config) -> None:
    """Give this process a directory of its own for temporary files, so that one sees what is left in it."""
    shared = os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    directory = Path(tempfile.mkdtemp(prefix="st-", dir=shared))
    directory.chmod(0o1777)
    tempfile.tempdir = str(directory)
    config.stash[_TEMPORARY] = directory
    config.stash[_LEFTOVERS] = leftovers = Leftovers(config.rootpath, directory)
    config.pluginmanager.register(leftovers)
    config.pluginmanager.register(namespaces)
    namespaces.enter()


def pytest_unconfigure(config: pytest.Config) -> None:
    gc.unfreeze()
    directory = config.stash[_TEMPORARY]
    if any(directory.glob("pymp-*")):  # ``multiprocessing`` removes its own at the very end, just before this
        Finalize(None, shutil.rmtree, (directory,), {"ignore_errors": True}, exitpriority=-1000)
    else:
        shutil.rmtree(directory, ignore_errors=True)


class _Scheduling(LoadFileScheduling):
    """Gives each worker a file at a time, and one of them all that share the service of ``tests/api``."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        directory = file.rpartition("/")[0]
        return directory if directory == "tests/api" else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return _Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a server, and begin with files that start Spark.

    A long file at the end would leave a worker idle.
    """
    for item in items:
        if item.get_closest_marker("spark") is not None or _SERVERS & _fixtures(item):
            item.add_marker(pytest.mark.service)
    long = {
        item.path
        for item in items
        if item.get_closest_marker("spark") is not None and item.get_closest_marker("slow") is None
    }
    items.sort(key=lambda item: item.path not in long)


def _fixtures(item: pytest.Item) -> set[str]:
    """Return the names of a test's fixtures; ``either_url`` is told by its parameter."""
    told = getattr(getattr(item, "callspec", None), "params", {}).get("either_url")
    return {*getattr(item, "fixturenames", ()), *([] if told is None else [told])}


def pytest_collection_finish() -> None:
    """Let the collector of garbage not look through modules and tests again, which takes it half a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaves a process, thread, socket, file or variable behind."""
    leftovers = request.config.stash[_LEFTOVERS]
    before = leftovers.look()
    yield
    left = leftovers.since(before)
    if left:
        pytest.fail("the test leaves behind: " + "; ".join(left), pytrace=False)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """URL of a catalog in a file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'catalog.db'}"


@pytest.fixture
def url(sqlite_url: str) -> str:
    """URL of a catalog that does not exist yet; the tests of the catalog get others, too."""
    return sqlite_url


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of this process, started by the first test that asks for it."""
    yield from server()


@pytest.fixture
def postgres_database(postgres: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own; it has the catalog's tables where the test wants a store."""
    wants_store = "store" in request.fixturenames
    name = postgres.create_migrated() if wants_store else postgres.create()
    yield name
    postgres.drop(name)


@pytest.fixture
def postgres_url(postgres: PostgresServer, postgres_database: str) -> str:
    """URL of a catalog on PostgreSQL."""
    return postgres.url(postgres_database)


@pytest.fixture(scope="session")
def s3_of_session() -> Iterator[s3_server.S3Server]:
    """An S3 server of this process, started by the first test that asks for it."""
    yield from s3_server.server()


@pytest.fixture
def s3(s3_of_session: s3_server.S3Server, monkeypatch: pytest.MonkeyPatch) -> s3_server.S3Server:
    """The S3 server, with the environment in which its clients find it."""
    for name, value in s3_of_session.environment.items():
        monkeypatch.setenv(name, value)
    return s3_of_session


@pytest.fixture(params=["sqlite", "postgres"])
def either_url(request: pytest.FixtureRequest) -> str:
    """URL of a catalog that does not exist yet: the test runs once on either database."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def clock() -> Callable[[], int]:
    """The catalog's clock: it ticks once per look."""
    return itertools.count(1_000_000).__next__


@pytest.fixture
def store(url: str, clock: Callable[[], int]) -> Iterator[Store]:
    """An empty catalog; tests get another one by fixtures ``url`` and ``clock`` of their own."""
    with Store.open(prepared(url), now_us=clock, busy_timeout_s=10) as opened:
        yield opened


@pytest.fixture
def own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what the test sets in environment variables and ``sys.path``; Java and Spark add to both."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def sluice(
    own_environment: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """Runs a command in this process; what it sets of the process is put back."""
    from api.main import main  # 0.5 s, which only those pay who run a command

    root = logging.getLogger()
    handlers, level, ending = root.handlers[:], root.level, signal.getsignal(signal.SIGTERM)
    umask = os.umask(0)
    os.umask(umask)
    monkeypatch.setattr(gc, "unfreeze", lambda: None)  # no engine has frozen anything

    def run(*words: str | Path) -> CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["sluice", *map(str, words)])
        capsys.readouterr()
        status: object = 0
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
        printed = capsys.readouterr()
        return CompletedProcess(sys.argv, int(str(status)), printed.out, printed.err)

    yield run
    os.umask(umask)
    signal.signal(signal.SIGTERM, ending)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def chosen_seed(request: pytest.FixtureRequest) -> int:
    """Seed of what a test draws itself: the one that ``make test-slow`` prints, else always the same."""
    return int(request.config.getoption("--hypothesis-seed") or 0)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-goldens", action="store_true", help="write what Sluice says now into the goldens"
    )


@pytest.fixture
def rewrite_goldens(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-goldens", default=False))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the slowest test files, so that one sees what makes the suite grow."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    terminalreporter.section(f"ten slowest files, of {seconds.total():.0f} s in all")
    for file, taken in seconds.most_common(10):
        terminalreporter.line(f"{taken:7.1f} s  {file}")
