"""The report: tables of peers.md, and the measurements as peers.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd

from tests.bench.peers.live import Live
from tests.bench.peers.measurement import Measurement, Rates
from tests.bench.peers.peers import PEERS
from tests.bench.peers.results import KINDS, frame, median, rows_of, sections, times
from tests.bench.peers.targets import target_rows
from tests.bench.reports import fill_page, read_figures, table, write_figures


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was measured.

    Attributes:
        measured: Runs over files.
        live: Runs of the service.
    """

    measured: tuple[Measurement, ...] = ()
    live: tuple[Live, ...] = ()

    def with_measurement(self, found: Measurement) -> Report:
        """Return the report with a run, which takes the place of an older one of the same."""
        return replace(self, measured=(*(m for m in self.measured if m.key != found.key), found))

    def with_live(self, found: Live) -> Report:
        """Return the report with a run of the service, likewise."""
        kept = (run for run in self.live if (run.run, run.quick) != (found.run, found.quick))
        return replace(self, live=(*kept, found))


def read_report(out: Path) -> Report:
    """Return what earlier runs measured, nothing where there are none."""
    document = read_figures(out / "peers.json")
    return Report(
        tuple(_measurement(m) for m in document.get("measurements", ())),
        tuple(Live(**run) for run in document.get("live", ())),
    )


def _measurement(document: dict[str, object]) -> Measurement:
    rates = {name: Rates(**document[name]) for name in ("rates", "sluice")}  # type: ignore[arg-type]  # JSON
    return Measurement(**(document | rates))  # type: ignore[arg-type]  # JSON


def write_report(out: Path, report: Report) -> str:
    """Write the measurements and the tables made of them, and return the page."""
    out.mkdir(parents=True, exist_ok=True)
    live = [asdict(run) for run in report.live]
    write_figures(out / "peers.json", {"measurements": [asdict(m) for m in report.measured], "live": live})
    runs = frame(report.measured)
    header = ("", "where", "what", "wanted", "whole job", "steady state")
    names = dict.fromkeys(name for _, own in sections(runs) for name in own.sort_values("_peer")["peer"])
    parts = {
        "setting": _setting(report),
        "targets": table(header, target_rows(runs, report.live), texts=3),
        **{_title(*key): _section(own) for key, own in sections(runs)},
        **({"live": _live(report.live)} if report.live else {}),
        "names": table(("", ""), [(name, PEERS[name].says) for name in names], texts=2),
    }
    return fill_page(out / "peers.md", parts)


def _setting(report: Report) -> str:
    versions: dict[str, str] = {}
    for one in report.measured:
        versions |= one.versions
    named = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    every = (*report.measured, *report.live)
    machines = "; ".join(dict.fromkeys(one.machine for one in every if one.machine))
    small = " **Some of it in small form (`--quick`), whose rates mean little.**"
    small = small if any(one.quick for one in every) else ""
    return f"{machines}; {named}. Medians of up to {len({one.run for one in every})} runs.{small}"


def _title(workload: str, scale: float, quick: bool) -> str:
    part = "" if scale == 1 else f", {scale:g} of the rows"
    return f"{workload}{part}{', small form' if quick else ''}"


def _section(runs: pd.DataFrame) -> str:
    header = (
        *("", "queries", "rows", "process, rows/s", "job", "steady"),
        *("Sluice is x times: process", "job", "steady", "batch s, p50", "p99", "memory, GB", "runs"),
    )
    return table(header, map(_line, rows_of(runs)))


def _line(runs: pd.DataFrame) -> tuple[str, ...]:
    one, right = runs.iloc[0], runs[runs["error"] == ""]
    asked = f"{one.queries}" if one.queries in (0, one.of_queries) else f"{one.queries} of {one.of_queries}"
    head = (one.peer, asked, f"{one.rows:,}")
    errors = _cell("; ".join(dict.fromkeys(error for error in runs["error"] if error)))
    if right.empty:
        return (*head, f"**failed**: {errors}", *([""] * 8), "0")
    # A program may be over before its memory was looked at.
    peak_gb = right["peak_bytes"].where(right["peak_bytes"] > 0) / 2**30
    return (
        *head,
        *(_number(median(right[f"rates.{kind}"]), ",.0f") for kind in KINDS),
        *(_number(None if one.peer == "sluice" else times(right, kind), ",.2f") for kind in KINDS),
        *(_number(median(right[name]), ".2f") for name in ("batch_p50_s", "batch_p99_s")),
        _number(median(peak_gb), ".1f"),
        f"{len(right)}" + (f", failed {len(runs) - len(right)}: {errors}" if errors else ""),
    )


#: What is told of the service: how it is shown, and where it is found.
_LIVE: tuple[tuple[str, str, Callable[[Live], float | None]], ...] = (
    ("events a second, both streams", ",.0f", lambda run: run.rows_per_s),
    ("latency, p50, s", ".3f", lambda run: run.latency_p50_s),
    ("latency, p99, s", ".3f", lambda run: run.latency_p99_s),
    ("batch meanwhile, median, s", ".3f", lambda run: run.batch_s),
    ("floor of a micro-batch, s", ".3f", lambda run: run.floor_s),
    ("latency, p50, in floors", ".2f", lambda run: run.p50_floors),
    ("latency, p99, in floors", ".2f", lambda run: run.p99_floors),
    ("results read, of one query", ",.0f", lambda run: run.read),
    ("results of all queries, as DuckDB counts them", ",.0f", lambda run: run.results),
)


def _live(runs: Sequence[Live]) -> str:
    """Return what the service did with live streams, whole runs if there are any."""
    chosen = [run for run in runs if not run.quick] or list(runs)
    rows = []
    for what, form, value in _LIVE:
        values = [value(run) for run in chosen if not run.error]
        shown = _number(median(pd.Series(values, dtype=float).dropna()), form)
        rows.append((what, shown, ", ".join(_number(v, form) for v in values)))
    failed = "".join(f"\n\n**failed**, run {run.run}: {run.error}" for run in chosen if run.error)
    small = "In short form, windows not yet full.\n\n" if any(run.quick for run in chosen) else ""
    return f"{small}{table(('', 'median', 'runs'), rows)}{failed}"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")
