"""Screen of the demo: a progress bar, figures, and a table of the queries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich import box
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from catalog.steps import stream_sides
from catalog.times.durations import format_duration
from catalog.values.query import Query
from service.demo.auctions import AUCTION_QUERIES
from service.demo.progress import Progress
from service.demo.queries import QUERIES


def screen(progress: Progress, total_rows: int, queries: Sequence[Query]) -> Group:
    """Return the picture of a running replay."""
    head = Table.grid(padding=(0, 2))
    bar = ProgressBar(total_rows, progress.read_rows, width=32)
    rate = f"{progress.rows_per_s:,.0f} rows/s"
    head.add_row(_moment(progress.event_time_us), bar, _share(progress.read_rows, total_rows), rate)
    return Group(head, Text(), results(progress, queries), Text(), numbers(progress))


def summary(progress: Progress, seconds: float, queries: Sequence[Query]) -> RenderableType:
    """Return the summary of a replay."""
    total = sum(progress.results.values())
    head = (
        f"{progress.input_rows:,} rows in {seconds:.1f} s ({progress.input_rows / seconds:,.0f} rows/s, "
        f"{progress.batches:,} batches, {progress.late_rows:,} late)\n"
        f"{total:,} results of {len(queries)} queries\n"
    )
    return Group(Text(head), results(progress, queries), Text(), numbers(progress))


def numbers(progress: Progress) -> Table:
    """Compare the cost of all families' shared chains with the cost of one join per query."""
    table = _table("", ">shared chains", ">unshared, Eq. 1", ">unshared, filters first")
    rows, pairs = progress.unshared_rows_mean, progress.unshared_pairs
    table.add_row(
        "state rows, mean",
        f"{progress.state_rows_mean:,.0f}",
        f"{rows.filters_last:,.0f}",
        f"{rows.filters_first:,.0f}",
    )
    table.add_row(
        "pairs compared", f"{progress.pairs:,}", f"{pairs.filters_last:,.0f}", f"{pairs.filters_first:,.0f}"
    )
    table.add_row("state rows, now", f"{progress.state_rows:,}")
    return table


def results(progress: Progress, queries: Sequence[Query]) -> Table:
    """Return the queries with their results so far, windows and questions."""
    questions = {query.name: query.question for query in (*QUERIES, *AUCTION_QUERIES)}
    table = _table("query", ">results", "windows", "asks for", last_gives_way=True)
    for query in queries:
        count = progress.results.get(query.id, 0)
        windows = ", ".join(format_duration(side.window_us) for side in stream_sides(query))
        table.add_row(query.name, f"{count:,}", windows, questions.get(query.name, ""))
    return table


def line(progress: Progress, total_rows: int) -> str:
    """Return the progress as one line, for output that is not a terminal."""
    return (
        f"{_moment(progress.event_time_us)}  {_share(progress.read_rows, total_rows)}  "
        f"{progress.rows_per_s:,.0f} rows/s  {progress.state_rows:,} state rows  "
        f"{sum(progress.results.values()):,} results"
    )


def welcome(about: str, example: str, url: str, data_dir: str, speed: float) -> RenderableType:
    """Return the addresses and commands to use while the demo runs."""
    lines = (
        f"Replaying {about}, {format_duration(int(speed * 1e6))} per second.",
        "",
        f"  console   {url}/",
        f"  results   curl '{url}/api/v1/queries/{example}/results?limit=5'",
        f"  plan      curl '{url}/api/v1/plan?format=mermaid'",
        f"  numbers   curl {url}/api/v1/statistics",
        f"  the API   {url}/api/v1/docs",
        f"  data      {data_dir}",
        "",
        "Ctrl-C ends it.",
        "",
    )
    return Text("\n".join(lines))


def _table(*headers: str, last_gives_way: bool = False) -> Table:
    """Return a table whose lines do not wrap; a header that begins with ``>`` is aligned right."""
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, expand=last_gives_way)
    for number, header in enumerate(headers, start=1):
        table.add_column(
            header.removeprefix(">"),
            justify="right" if header.startswith(">") else "left",
            no_wrap=True,
            ratio=1 if last_gives_way and number == len(headers) else None,
        )
    return table


def _moment(event_time_us: int | None) -> str:
    if event_time_us is None:
        return "starting        "
    return datetime.fromtimestamp(event_time_us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M")


def _share(rows: int, total: int) -> str:
    return f"{100 * rows / total:5.1f} %"
