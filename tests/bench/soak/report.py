"""The report of a soak: JSON for programs, a page of tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from tests.bench.reports import fill_page, table, write_figures
from tests.bench.soak.expected import Compared
from tests.bench.soak.soak import Soaked
from tests.bench.soak.verdict import SHARE, grew, is_judged

#: Figures smaller than that at both ends are left out of the page.
_SHOWN = {"bytes": 2**20, "": 1}


@dataclass(frozen=True, slots=True, eq=False)
class SoakReport:
    """Findings of a soak.

    Attributes:
        soaked: The soak.
        machine: What it ran on.
        conditions: Who else used the machine.
        facts: Rows posted and late, results, batches, plan versions, queries that came.
        compared: What was read of each query beside what it must have given.
        minutes: Minutes under load.
        warm_up: Stretches that are not judged.
        stretch_s: Length of a stretch.
        changes: Medians of every figure in each stretch; empty if it was too short for a verdict.
    """

    soaked: Soaked
    machine: str
    conditions: str
    facts: dict[str, int]
    compared: Sequence[Compared]
    minutes: pd.DataFrame
    warm_up: int
    stretch_s: int
    changes: pd.DataFrame

    @property
    def wrong(self) -> list[Compared]:
        """Queries whose results are not what they must be."""
        return [query for query in self.compared if not query.equal]

    @property
    def grown(self) -> list[str]:
        """Figures that grew."""
        return [str(name) for name, *medians in self.changes.itertuples() if self.grew(str(name), medians)]

    def grew(self, name: str, medians: Sequence[float]) -> bool:
        """Return whether a figure grew from the first stretch after the warm-up to the last one."""
        return grew(name, medians[self.warm_up], medians[-1])


def write_report(out: Path, report: SoakReport) -> str:
    """Write soak.json and the tables of soak.md, and return the page."""
    out.mkdir(parents=True, exist_ok=True)
    document = {
        "soaked": asdict(report.soaked),
        "machine": report.machine,
        "conditions": report.conditions,
        "facts": report.facts,
        # Of a visitor what is right says nothing.
        "compared": [
            asdict(query) for query in report.compared if query.name.startswith("standing") or not query.equal
        ],
        "minutes": report.minutes.to_dict("records"),
        "warm_up": report.warm_up,
        "stretch_s": report.stretch_s,
        "changes": {str(name): medians for name, *medians in report.changes.itertuples()},
    }
    write_figures(out / "soak.json", document)
    setting = report.soaked.setting
    said = (
        f"{report.machine}; {report.soaked.began} UTC. {report.conditions}\n\n"
        f"{setting.duration_s / 60:.0f} minutes, {2 * setting.rate_per_s:,} rows/s posted over two streams, "
        f"20 standing queries, and every {setting.change_every_s:.0f} s a query that comes, changes or goes; "
        f"results kept for {setting.retention}."
    )
    parts = {
        "setting": said,
        "facts": _facts(report),
        "what grew": _verdict(report),
        "minutes": _minutes(report.minutes),
    }
    return fill_page(out / "soak.md", parts)


def _facts(report: SoakReport) -> str:
    expected = sum(query.expected for query in report.compared)
    lines = [(name, f"{count:,}") for name, count in report.facts.items()]
    lines += [
        ("results expected by DuckDB", f"{expected:,}"),
        ("queries with other results", f"{len(report.wrong)} of {len(report.compared)}"),
    ]
    wrong = [
        f"\n- {query.name}: of {query.expected:,} results {query.missing:,} missing, {query.extra:,} not "
        f"expected, {query.doubled:,} doubled"
        for query in report.wrong
    ]
    return table(("", ""), lines) + ("\n" if wrong else "") + "".join(wrong)


def _minutes(minutes: pd.DataFrame) -> str:
    rows = [
        (
            *(minute.Index, f"{minute.rows_per_s:,.0f}", f"{minute.batches:.0f}", f"{minute.results:,.0f}"),
            *(f"{seconds * 1e3:,.0f}" for seconds in (minute.p50_s, minute.p99_s, minute.post_p99_s)),
            *(f"{minute.private_bytes / 1e6:,.0f}", f"{minute.load:.1f}"),
        )
        for minute in minutes.itertuples()
    ]
    header = ("minute", "rows/s", "batches", "results", "p50, ms", "p99, ms", "request p99, ms")
    return table((*header, "private, MB", "load"), rows)


def _verdict(report: SoakReport) -> str:
    if report.changes.empty:
        return "The run was too short to say."
    minutes = report.stretch_s // 60
    rows = []
    for name, *medians in report.changes.itertuples():
        shown = name.endswith("_s") or name.startswith("of each")
        if shown or max(medians) >= _SHOWN["bytes" if name.endswith("bytes") else ""]:
            first = medians[report.warm_up]
            share = (medians[-1] - first) / first if first else 0.0
            mark = " (grew)" if report.grew(name, medians) else "" if is_judged(name) else " (not judged)"
            rows.append((*_shown(name, medians), f"{share:+.1%}{mark}"))
    header = ("figure", *(f"from {n * minutes} min" for n in report.changes.columns), "change")
    return (
        f"Medians of stretches of {minutes} minutes; the last one is compared with the one from minute "
        f"{report.warm_up * minutes} on. More than {SHARE:.0%} larger: "
        f"**{', '.join(report.grown) or 'nothing'}**.\n\n{table(header, rows)}"
    )


def _shown(name: str, medians: Sequence[float]) -> tuple[str, ...]:
    """Return the name and the medians of a figure in units for people."""
    unit, scale, digits = "", 1.0, 1 if max(medians) < 100 else 0
    if name.endswith("bytes"):
        of_each = name.startswith("of each batch")
        name, digits = name.removesuffix("bytes"), 1
        unit, scale = (", kB", 1e-3) if of_each else (", MB", 1e-6)
    elif name.endswith("_s"):
        name, unit, scale, digits = name.removesuffix("_s"), ", ms", 1e3, 0
    return (name.replace("_", " ").strip() + unit, *(f"{median * scale:,.{digits}f}" for median in medians))
