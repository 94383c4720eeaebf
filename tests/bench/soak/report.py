"""The report of a soak: JSON for programs, a page of tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.reports import table, write_page
from tests.bench.soak.expected import Compared
from tests.bench.soak.soak import Soaked
from tests.bench.soak.verdict import SHARE, Change, Minute

#: Figures smaller than that at both ends are left out of the page.
_SHOWN = {"bytes": 2**20, "": 1}


@dataclass(frozen=True, slots=True)
class SoakReport:
    """Findings of a soak.

    Attributes:
        soaked: The soak.
        machine: What it ran on.
        conditions: Who else used the machine.
        rows: Rows posted and acknowledged, both streams.
        late_rows: Of these, found late.
        results: Results that batches gave, of all queries.
        batches: Batches.
        plan_versions: Plan versions that were in force.
        visitors: Queries that came.
        compared: What was read of each query beside what it must have given.
        minutes: Minutes under load.
        warm_up: Stretches that are not judged.
        stretch_s: Length of a stretch.
        changes: Figures in each stretch; none if it was too short for a verdict.
    """

    soaked: Soaked
    machine: str
    conditions: str
    rows: int
    late_rows: int
    results: int
    batches: int
    plan_versions: int
    visitors: int
    compared: Sequence[Compared]
    minutes: Sequence[Minute]
    warm_up: int
    stretch_s: int
    changes: Sequence[Change]

    @property
    def wrong(self) -> list[Compared]:
        """Queries whose results are not what they must be."""
        return [query for query in self.compared if not query.equal]

    @property
    def grown(self) -> list[Change]:
        """Figures that grew."""
        return [change for change in self.changes if change.grew]


def write_report(out: Path, report: SoakReport) -> str:
    """Write soak.md and soak.json and return the text."""
    document = asdict(report)
    # Of a visitor what is right says nothing.
    document["compared"] = [
        asdict(query) for query in report.compared if query.name.startswith("standing") or not query.equal
    ]
    return write_page(out, "soak", _page(report), document)


def _page(report: SoakReport) -> str:
    setting = report.soaked.setting
    facts = [
        ("rows posted", f"{report.rows:,}"),
        ("late rows", f"{report.late_rows:,}"),
        ("batches", f"{report.batches:,}"),
        ("plan versions in force", f"{report.plan_versions:,}"),
        ("queries that came", f"{report.visitors:,}"),
        ("results expected by DuckDB", f"{sum(query.expected for query in report.compared):,}"),
        ("queries with other results", f"{len(report.wrong)} of {len(report.compared)}"),
    ]
    wrong = [
        f"- {query.name}: of {query.expected:,} results {query.missing:,} missing, {query.extra:,} not "
        f"expected, {query.doubled:,} doubled"
        for query in report.wrong
    ]
    minutes = [
        (
            *(minute.number, f"{minute.rows_per_s:,.0f}", minute.batches, f"{minute.results:,}"),
            *(f"{seconds * 1e3:,.0f}" for seconds in (minute.p50_s, minute.p99_s, minute.post_p99_s)),
            *(f"{minute.private_bytes / 1e6:,.0f}", f"{minute.load:.1f}"),
        )
        for minute in report.minutes
    ]
    header = (
        *("minute", "rows/s", "batches", "results", "p50, ms", "p99, ms", "request p99, ms"),
        *("private, MB", "load"),
    )
    parts = [
        "# Soak",
        f"Written by `python -m tests.bench.soak`; {report.machine}; "
        f"{report.soaked.began} UTC. {report.conditions}",
        f"{setting.duration_s / 60:.0f} minutes, {2 * setting.rate_per_s:,} rows/s posted over two streams, "
        f"20 standing queries, and every {setting.change_every_s:.0f} s a query that comes, changes or goes; "
        f"results kept for {setting.retention}.",
        table(("", ""), facts),
        *(["\n".join(wrong)] if wrong else []),
        "## What grew",
        *_verdict(report),
        "## Minute by minute",
        "Latency is from the request with the later row of a result until the result was read.",
        table(header, minutes),
    ]
    return "\n\n".join(parts)


def _verdict(report: SoakReport) -> list[str]:
    if not report.changes:
        return ["The run was too short to say."]
    minutes = report.stretch_s // 60
    names = ", ".join(change.name for change in report.grown) or "nothing"
    stretches = range(len(report.changes[0].medians))
    rows = []
    for change in report.changes:
        shown = change.name.endswith("_s") or change.name.startswith("of each")
        if shown or max(change.medians) >= _grain(change.name):
            name, medians = _shown(change)
            mark = " (grew)" if change.grew else "" if change.judged else " (not judged)"
            rows.append((name, *medians, f"{change.share:+.1%}{mark}"))
    return [
        f"Medians of stretches of {minutes} minutes; the last one is compared with the one from minute "
        f"{report.warm_up * minutes} on. More than {SHARE:.0%} larger: **{names}**.",
        table(("figure", *(f"from {n * minutes} min" for n in stretches), "change"), rows),
    ]


def _grain(name: str) -> int:
    return _SHOWN["bytes" if name.endswith("bytes") else ""]


def _shown(change: Change) -> tuple[str, list[str]]:
    """Return the name and the medians of a figure in units for people."""
    name, unit, scale, digits = change.name, "", 1.0, 1 if max(change.medians) < 100 else 0
    if name.startswith("of each batch") and name.endswith("bytes"):
        name, unit, scale, digits = name.removesuffix("bytes"), ", kB", 1e-3, 1
    elif name.endswith("bytes"):
        name, unit, scale, digits = name.removesuffix("bytes"), ", MB", 1e-6, 1
    elif name.endswith("_s"):
        name, unit, scale, digits = name.removesuffix("_s"), ", ms", 1e3, 0
    medians = [f"{median * scale:,.{digits}f}" for median in change.medians]
    return name.replace("_", " ").strip() + unit, medians
