"""What the demo shows: a progress bar, the numbers beside it, and a table of the queries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich import box
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from catalog.values.query import Query
from service.demo.progress import Progress
from service.demo.queries import QUERIES
from service.demo.unshared import Unshared
from service.durations import format_duration


def screen(
    progress: Progress, total_rows: int, first_us: int, queries: Sequence[Query], model: Unshared
) -> Group:
    """Return the picture of a running replay."""
    head = Table.grid(padding=(0, 2))
    head.add_row(
        _moment(progress.event_time_us),
        ProgressBar(total_rows, progress.input_rows, width=40),
        _share(progress.input_rows, total_rows),
    )
    return Group(head, numbers(progress, first_us, model), results(progress, queries))


def numbers(progress: Progress, first_us: int, model: Unshared) -> Table:
    """Return the totals, beside what the same queries would need unshared."""
    event_s = 0.0 if progress.event_time_us is None else (progress.event_time_us - first_us) / 1_000_000
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    table.add_column("")
    table.add_column("shared, measured", justify="right")
    table.add_column("unshared, Eq. 1", justify="right")
    table.add_row("state rows, mean", f"{progress.state_rows_mean:,.0f}", f"{model.state_rows:,.0f}")
    table.add_row("pairs compared", f"{progress.pairs:,}", f"{model.pairs_per_s * event_s:,.0f}")
    table.add_row("state rows, now and peak", f"{progress.state_rows:,} / {progress.state_rows_peak:,}", "")
    table.add_row("input rows, late rows", f"{progress.input_rows:,} / {progress.late_rows:,}", "")
    table.add_row("input rows/s, batches", f"{progress.rows_per_s:,.0f} / {progress.batches:,}", "")
    return table


def summary(
    progress: Progress, seconds: float, first_us: int, queries: Sequence[Query], model: Unshared
) -> RenderableType:
    """Return what a replay came to."""
    total = sum(progress.results.values())
    head = (
        f"{progress.input_rows:,} rows in {seconds:.1f} s gave {total:,} results of {len(queries)} queries.\n"
    )
    return Group(Text(head), results(progress, queries), Text(), numbers(progress, first_us, model))


def results(progress: Progress, queries: Sequence[Query]) -> Table:
    """Return the queries with their windows and results so far."""
    questions = {query.name: query.question for query in QUERIES}
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    table.add_column("query", no_wrap=True)
    table.add_column("windows", no_wrap=True)
    table.add_column("results", justify="right", no_wrap=True)
    table.add_column("what it asks", no_wrap=True, overflow="ellipsis")
    for query in queries:
        windows = f"{format_duration(query.a.window_us)}, {format_duration(query.b.window_us)}"
        count = progress.results.get(query.id, 0)
        table.add_row(query.name, windows, f"{count:,}", questions.get(query.name, ""))
    return table


def line(progress: Progress, total_rows: int) -> str:
    """Return the progress as one line, for output that is not a terminal."""
    return (
        f"{_moment(progress.event_time_us)}  {_share(progress.input_rows, total_rows)}  "
        f"{progress.rows_per_s:,.0f} rows/s  {progress.state_rows:,} state rows  "
        f"{sum(progress.results.values()):,} results"
    )


def welcome(url: str, data_dir: str, speed: float) -> RenderableType:
    """Return where to look while the demo runs."""
    lines = (
        f"Replaying flights and weather of New York in 2013, {format_duration(int(speed * 1e6))} per second.",
        "",
        f"  results   curl '{url}/api/v1/queries/fog_delays/results?limit=5'",
        f"  plan      curl '{url}/api/v1/plan?format=mermaid'",
        f"  numbers   curl {url}/api/v1/statistics",
        f"  the API   {url}/api/v1/docs",
        f"  data      {data_dir}",
        "",
        "Ctrl-C ends it.",
        "",
    )
    return Text("\n".join(lines))


def _moment(event_time_us: int | None) -> str:
    if event_time_us is None:
        return "starting        "
    return datetime.fromtimestamp(event_time_us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M")


def _share(rows: int, total: int) -> str:
    return f"{100 * rows / total:5.1f} %"
