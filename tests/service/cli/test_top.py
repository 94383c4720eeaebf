"""`sluice top`: figures of two looks, and the picture of them."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from service.cli.top import Sight, figures, picture


def query(number: int, results: int, **facts: Any) -> dict[str, Any]:
    windows = [{"window": "1h"}, {"window": "10min"}]
    return {
        "id": number,
        "name": f"q{number}",
        "observed": "running",
        "results": results,
        "streams": windows,
        "sink": None,
        "sink_observed": None,
    } | facts


def look(at_s: float, rows: int, results: list[int], **engine: Any) -> Sight:
    def stream(name: str, watermark_us: int | None) -> dict[str, Any]:
        return {"stream": name, "rows": rows, "late_rows": 2, "watermark_us": watermark_us}

    streams = [stream("flights", 1_767_268_800_000_000), stream("weather", 1_767_268_740_000_000)]
    statistics = {
        "input_rows": 2 * rows,
        "batch_seconds": 0.166,
        "state_rows": 20_000,
        "state_bytes": 640_000,
        "streams": [*streams, stream("idle", None)],
    }
    status = {"state": "running", "batch": 1204, "plan_version": 17, "error": None} | engine
    return Sight(at_s, status, statistics, [query(n, count) for n, count in enumerate(results, 1)])


def printed(shown: dict[str, Any], lines: int | None = None, problem: str | None = None) -> list[str]:
    console = Console(width=90, record=True, file=open("/dev/null", "w"))  # noqa: SIM115  # closed with it
    with console.file:
        console.print(picture(shown, lines, problem))
        return [line.rstrip() for line in console.export_text().splitlines()]


def test_rates_are_differences_and_the_busiest_query_is_first() -> None:
    shown = figures(look(12, 600, [10, 400]), look(10, 300, [10, 100]))

    assert printed(shown) == [
        "running   batch 1,204   plan 17   300 rows/s   0.17 s a batch   20,000 rows held",
        "",
        "STREAM   ROWS/S  ROWS  LATE  WATERMARK            BEHIND",
        "flights     150   600     2  2026-01-01 12:00:00       -",
        "weather     150   600     2  2026-01-01 11:59:00    1min",
        "idle        150   600     2  -                         -",
        "",
        "QUERY  STATE    RESULTS/S  RESULTS  WINDOWS    SINK  LAG",
        "q2     running        150      400  1h, 10min  -       -",
        "q1     running          0       10  1h, 10min  -       -",
    ]


def test_one_look_has_no_rates() -> None:
    shown = figures(look(12, 600, [10]), None)

    assert shown["rows_per_s"] is None
    assert shown["queries"][0]["results_per_s"] is None
    assert printed(shown)[-1] == "q1     running          -       10  1h, 10min  -       -"


def test_queries_that_do_not_fit_are_counted() -> None:
    shown = figures(look(12, 600, list(range(1000))), None)

    lines = printed(shown, lines=24)
    assert lines[-1] == "and 988 more queries"
    assert len(lines) <= 24


def test_an_error_of_the_engine_and_of_the_connection_are_shown() -> None:
    failed = figures(look(12, 600, [], state="failed", error="no space left"), None)

    assert printed(failed)[1] == "no space left"
    assert printed(failed, problem='no answer from "http://x"')[1] == 'no answer from "http://x"'


def test_a_query_that_came_meanwhile_has_no_rate_and_counters_that_begin_anew_have_none_below_zero() -> None:
    shown = figures(look(12, 10, [1, 2]), look(10, 300, [5]))

    assert {q["query"]: q["results_per_s"] for q in shown["queries"]} == {"q1": 0, "q2": None}
    assert shown["rows_per_s"] == 0
