"""``sluice demo``: run a service, replay streams into it, and show its queries.

The replay writes one Parquet file per stream and step of event time into the inbox that the streams read
from. Files appear complete and in order of event time, so no row is late.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from catalog.values.query import Query
from catalog.values.stream import Stream
from service.config.settings import Settings
from service.demo.auctions import (
    AUCTION_QUERIES,
    STEP_US,
    auction_figures,
    auction_streams,
    auction_tables,
)
from service.demo.data import ReplayedTables, demo_streams, load_tables
from service.demo.progress import Progress, ProgressReader
from service.demo.queries import QUERIES, DemoQuery
from service.demo.replay import Replay, kept_step_length_us
from service.demo.screen import line, screen, summary, welcome
from service.demo.unshared import UnsharedMeter
from service.errors import DemoFailed
from service.jvm.java import use_java

if TYPE_CHECKING:
    from service.workspace.workspace import Workspace

#: With --once, a batch reads one file of each stream, which covers a week, so that progress is visible.
ONCE_FILES_PER_BATCH = 1
#: Maximum seconds until the first plan is active. This includes Spark's start, about ten seconds on two
#: cores.
START_TIMEOUT_S = 180.0
#: Seconds between two updates of the screen, and between two printed lines without a terminal.
DRAW_EVERY_S = 0.5
LINE_EVERY_S = 5.0


#: Returns a context manager that serves a workspace with the given settings until its block ends.
Serving = Callable[[Settings], "AbstractContextManager[Workspace]"]


@dataclass(frozen=True, slots=True)
class Scene:
    """Streams and queries of a demo.

    Attributes:
        about: Description of the replayed streams.
        load: Returns the streams' rows.
        streams: Returns the streams, given their inbox and the number of files per batch.
        queries: Queries over the streams.
        example: Name of the query whose results the welcome text refers to.
        speed: Seconds of event time per second.
        step_us: Event time per file, µs, or None to derive it from the speed.
        figures: Returns the lines that are printed at the end of a run.
    """

    about: str
    load: Callable[[], ReplayedTables]
    streams: Callable[[Path, int | None], tuple[Stream, ...]]
    queries: tuple[DemoQuery, ...]
    example: str
    speed: float
    step_us: int | None
    figures: Callable[[Workspace, ReplayedTables], str]


def _auction_lines(workspace: Workspace, tables: ReplayedTables) -> str:
    plan, last = workspace.plans.latest(), workspace.batches.last_manifest()
    assert plan is not None  # queries are registered
    manifests = () if last is None else workspace.batches.manifests(0, last.batch)
    (family,) = (family.id for family in plan.families if family.has_groups)
    found = auction_figures(manifests, family, tables)
    when = (
        "some counts are missing"
        if found.most_batches is None
        else (f"each count came at most {found.most_batches} batches after the closing")
    )
    return (
        f"{found.closings:,} auctions were closed; {when}.\n"
        f"{found.held:,.0f} auctions were in the state on average, {found.share:.2f} times the "
        f"{found.without:,.0f} that would be there without punctuations."
    )


FLIGHTS = Scene(
    "flights, weather and aircraft of New York in 2013",
    load_tables,
    demo_streams,
    QUERIES,
    "fog_delays",
    86_400.0,
    None,
    lambda _workspace, _tables: "",
)
AUCTIONS = Scene(
    "made-up auctions and bids",
    auction_tables,
    auction_streams,
    AUCTION_QUERIES,
    "closed_auctions",
    3_600.0,
    STEP_US,
    _auction_lines,
)


def run_demo(
    settings: Settings,
    serving: Serving,
    *,
    speed: float | None,
    once: bool,
    data_dir: Path | None,
    scene: Scene = FLIGHTS,
) -> None:
    """Run the demo until Ctrl-C, or with ``once`` until every row is processed.

    Args:
        settings: Settings with the address and the number of cores; their data directory is not used.
        serving: Serves a workspace over HTTP; it is not called with ``once``.
        speed: Seconds of event time replayed per second; None uses the scene's speed, or with ``once`` writes
            everything at once.
        once: End with a table of results instead of serving.
        data_dir: Directory that is kept; a demo found in it is continued. None uses a temporary directory.
        scene: Streams and queries.

    Raises:
        SluiceError: The service cannot start, or fails.
    """
    console = Console(highlight=False)
    pace = speed if speed is not None or once else scene.speed
    use_java()
    with _directory(data_dir) as root:
        settings = settings.for_data_dir(root)
        inbox = settings.sources.model_copy(update={"roots": (root / "inbox",)})
        settings = settings.model_copy(update={"sources": inbox})
        console.print(f"Reading the data and starting Spark on {settings.spark.cores} cores ...")
        tables = scene.load()
        with _workspace(settings, None if once else serving) as workspace:
            step_us = scene.step_us or kept_step_length_us(root, pace)
            replay = Replay(tables, root / "inbox", step_us, pace)
            if pace is None:
                replay.write()  # before the streams are registered, so that their directories are complete
            files_per_batch = ONCE_FILES_PER_BATCH if pace is None else None
            queries = _register(workspace, scene, root / "inbox", files_per_batch)
            reader = ProgressReader(workspace.batches, workspace.counts, _meter(workspace, tables))
            if not once:
                url = f"http://{settings.server.host}:{settings.server.port}"
                text = welcome(scene.about, scene.example, url, str(root), pace or scene.speed)
                console.print(text, soft_wrap=True)
            began_s = time.monotonic()
            with replay.running():
                last = _watch(console, workspace, replay, reader, tables.rows, queries, once=once)
            console.print(summary(last, time.monotonic() - began_s, queries))
            console.print(scene.figures(workspace, tables), soft_wrap=True)


def _watch(
    console: Console,
    workspace: Workspace,
    replay: Replay,
    reader: ProgressReader,
    total_rows: int,
    queries: tuple[Query, ...],
    *,
    once: bool,
) -> Progress:
    """Show progress until Ctrl-C, or with ``once`` until the last row; return the final progress."""
    progress = reader.read(time.monotonic())
    live = Live(console=console, auto_refresh=False, transient=True)
    told_s = float("-inf")
    try:
        with live:
            while not (once and progress.read_rows >= total_rows):
                progress = reader.read(time.monotonic())
                if console.is_terminal:
                    live.update(screen(progress, total_rows, queries), refresh=True)
                elif time.monotonic() - told_s >= LINE_EVERY_S:
                    told_s = time.monotonic()
                    console.print(line(progress, total_rows), soft_wrap=True)
                replay.check()
                _check(workspace)
                time.sleep(DRAW_EVERY_S)
    except KeyboardInterrupt:
        console.print("Stopping ...")
    return progress


def _register(
    workspace: Workspace, scene: Scene, inbox: Path, files_per_batch: int | None
) -> tuple[Query, ...]:
    """Register streams and queries that are not registered yet, and wait until all are active."""
    streams = {stream.name for stream in workspace.streams.all()}
    for stream in scene.streams(inbox, files_per_batch):
        (inbox / stream.name).mkdir(parents=True, exist_ok=True)
        if stream.name not in streams:
            workspace.streams.register(stream)
    there = {query.name for query in workspace.queries.running()}
    for query in scene.queries:
        if query.name not in there:
            workspace.queries.add(query.name, query.cql)
    plan = workspace.plans.latest()
    version = plan.version if plan is not None else 0
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while not workspace.wait_for_version(version, 1.0):
        _check(workspace)
        if time.monotonic() > deadline_s:
            raise DemoFailed(f"the engine did not activate its plan in {START_TIMEOUT_S:.0f} seconds")
    by_name = {query.name: query for query in workspace.queries.running()}
    return tuple(by_name[query.name] for query in scene.queries)


def _meter(workspace: Workspace, tables: ReplayedTables) -> UnsharedMeter:
    plan = workspace.plans.latest()
    assert plan is not None  # queries are registered
    return UnsharedMeter(plan, tables)


def _check(workspace: Workspace) -> None:
    """Raise if the engine has failed."""
    status = workspace.engine.status()
    if status.state == "failed":
        raise DemoFailed("the engine failed", detail=status.error)


@contextmanager
def _workspace(settings: Settings, serving: Serving | None) -> Iterator[Workspace]:
    """Start the engine, together with the API if ``serving`` is given."""
    if serving is not None:
        with serving(settings) as workspace:
            yield workspace
        return
    from service.workspace.workspace import Workspace

    workspace = Workspace(settings)
    workspace.open()
    engine = workspace.new_engine_part()
    try:
        engine.start(stand_by=False)
        yield workspace
    finally:
        engine.stop()
        workspace.close_catalog()


@contextmanager
def _directory(data_dir: Path | None) -> Iterator[Path]:
    if data_dir is not None:
        data_dir.mkdir(parents=True, exist_ok=True)
        yield data_dir.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="sluice-demo-", ignore_cleanup_errors=True) as path:
        yield Path(path)
