"""``sluice top``: engine, streams and queries of the running service, in a display that is updated.

    running   batch 1,204   plan 17   6,030 rows/s   0.17 s a batch   20,000 rows held

    STREAM    ROWS/S     ROWS  LATE  WATERMARK            BEHIND
    flights    3,015  602,000    12  2026-11-25 22:00:00       -

    QUERY        STATE    RESULTS/S  RESULTS  WINDOWS     SINK     LAG
    fog_delays   running         41    8,211  1h, 10min   files      0

Rates are computed from two consecutive snapshots. BEHIND is how far a stream's watermark is behind the most
advanced watermark; rows of the other streams wait for a stream that is behind. LAG counts the batches that a
sink has not accepted yet.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.times.durations import format_duration
from service.cli.client_cli import DEFAULT_URL, UrlOption, client, items
from service.cli.options import JsonOption
from service.errors import ServiceFailed

if TYPE_CHECKING:
    from rich.console import RenderableType

    from service.cli.client import Client

#: Number of screen lines that are not rows of tables: the head, two headers, and empty lines.
_OTHER_LINES = 9


@dataclass(frozen=True, slots=True)
class Sight:
    """Snapshot of the service's state.

    Attributes:
        at_s: Time at which the snapshot was read, monotonic clock, seconds.
        engine: Answer of ``GET /engine``.
        statistics: Answer of ``GET /statistics``.
        queries: Items of ``GET /queries``, without removed queries.
    """

    at_s: float
    engine: Mapping[str, Any]
    statistics: Mapping[str, Any]
    queries: Sequence[Mapping[str, Any]]


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot and exit.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two updates.")] = 2.0,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Watch engine, streams and queries until Ctrl-C; the queries with the highest rates come first.

    With --json each refresh prints one JSON object on one line.
    """
    # The imports take 0.1 s, and other commands do not need them.
    from rich.console import Console
    from rich.live import Live

    service, console = client(url), Console()
    before = look(service)
    if once or as_json:
        shown = figures(before, None)
        while True:
            if as_json:
                typer.echo(json.dumps(shown, ensure_ascii=False))
            else:
                console.print(picture(shown, None))
            if once:
                return
            time.sleep(every)
            now = look(service)
            shown, before = figures(now, before), now
    shown = figures(before, None)
    with Live(picture(shown, console.height), console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(every)
                try:
                    now = look(service)
                except ServiceFailed as error:
                    # The service may be restarting, so the last snapshot stays on the screen.
                    live.update(picture(shown, console.height, str(error.primary)), refresh=True)
                    continue
                shown, before = figures(now, before), now
                live.update(picture(shown, console.height), refresh=True)
        except KeyboardInterrupt:
            return


def look(service: Client) -> Sight:
    """Read a snapshot from a service."""
    queries = [query for query in items(service, "/queries") if query["observed"] != "removed"]
    statistics = service.json("GET", "/statistics")
    return Sight(time.monotonic(), service.json("GET", "/engine"), statistics, queries)


def figures(now: Sight, before: Sight | None) -> dict[str, Any]:
    """Return the figures of a snapshot, as ``--json`` prints them.

    Args:
        now: The snapshot.
        before: The previous snapshot, from which rates are computed; None leaves out the rates.
    """
    seconds = None if before is None else now.at_s - before.at_s

    def rate(count: int, counted: int | None) -> float | None:
        # Counts decrease if another service was started at the same URL; a rate must not become negative.
        return None if not seconds or counted is None else max(count - counted, 0) / seconds

    statistics = now.statistics
    rows_before = {} if before is None else {s["stream"]: s["rows"] for s in before.statistics["streams"]}
    results_before = {} if before is None else {q["id"]: q["results"] for q in before.queries}
    furthest_us = max((s["watermark_us"] or 0 for s in statistics["streams"]), default=0)
    streams = [
        {
            "stream": stream["stream"],
            "rows_per_s": rate(stream["rows"], rows_before.get(stream["stream"])),
            "rows": stream["rows"],
            "late_rows": stream["late_rows"],
            "watermark_us": stream["watermark_us"],
            "behind_us": None if stream["watermark_us"] is None else furthest_us - stream["watermark_us"],
        }
        for stream in statistics["streams"]
    ]
    queries = [
        {
            "query": query["name"],
            "state": query["observed"],
            "results_per_s": rate(query["results"], results_before.get(query["id"])),
            "results": query["results"],
            "windows": [side["window"] for side in query["streams"]],
            "sink": None if query["sink"] is None else query["sink"]["type"],
            "sink_lag_batches": None
            if query["sink_observed"] is None
            else query["sink_observed"]["lag_batches"],
        }
        for query in now.queries
    ]
    queries.sort(key=lambda query: (-(query["results_per_s"] or 0), -query["results"], query["query"]))
    total_before = None if before is None else before.statistics["input_rows"]
    return {
        "engine": {name: now.engine[name] for name in ("state", "batch", "plan_version", "error")},
        "rows_per_s": rate(statistics["input_rows"], total_before),
        "batch_seconds": statistics["batch_seconds"],
        "state_rows": statistics["state_rows"],
        "state_bytes": statistics["state_bytes"],
        "streams": streams,
        "queries": queries,
    }


def picture(shown: Mapping[str, Any], lines: int | None, problem: str | None = None) -> RenderableType:
    """Return the figures of a snapshot as a screen of tables.

    Args:
        shown: Result of ``figures``.
        lines: Height of the terminal; queries that do not fit are only counted. None means no limit.
        problem: Error of the last request to the service, or None.
    """
    from rich.console import Group
    from rich.text import Text

    engine = shown["engine"]
    head = [
        engine["state"],
        f"batch {_number(engine['batch'])}",
        f"plan {engine['plan_version']}",
        f"{_number(shown['rows_per_s'])} rows/s",
        f"{shown['batch_seconds']:.2f} s a batch",
        f"{_number(shown['state_rows'])} rows held",
    ]
    said = [Text("   ".join(head), style="bold", no_wrap=True, overflow="ellipsis")]
    if trouble := problem or engine["error"]:
        said.append(Text(trouble, style="red"))
    streams = _table("STREAM", ">ROWS/S", ">ROWS", ">LATE", "WATERMARK", ">BEHIND")
    for stream in shown["streams"]:
        streams.add_row(
            stream["stream"],
            _number(stream["rows_per_s"]),
            _number(stream["rows"]),
            _number(stream["late_rows"]),
            _moment(stream["watermark_us"]),
            format_duration(stream["behind_us"]) if stream["behind_us"] else "-",
        )
    fitting = None if lines is None else max(lines - _OTHER_LINES - len(shown["streams"]), 1)
    queries = _table("QUERY", "STATE", ">RESULTS/S", ">RESULTS", "WINDOWS", "SINK", ">LAG")
    for query in shown["queries"][:fitting]:
        queries.add_row(
            query["query"],
            query["state"],
            _number(query["results_per_s"]),
            _number(query["results"]),
            ", ".join(query["windows"]),
            query["sink"] or "-",
            _number(query["sink_lag_batches"]),
        )
    more = 0 if fitting is None else len(shown["queries"]) - fitting
    rest = [Text(f"and {more} more queries")] if more > 0 else []
    return Group(*said, Text(), streams, Text(), queries, *rest)


def _table(*headers: str) -> Any:
    """Return an empty table of ``rich``; a header that begins with ``>`` is aligned right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        right = header.startswith(">")
        table.add_column(header.removeprefix(">"), justify="right" if right else "left", no_wrap=True)
    return table


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"


def _moment(time_us: int | None) -> str:
    if time_us is None:
        return "-"
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
