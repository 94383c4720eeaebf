"""The report: migration.md, the figures as migration.json, and two plots."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.migration.activation import TARGET_BATCHES, Activated
from tests.bench.migration.carrying import TARGET as CARRYING_TARGET
from tests.bench.migration.carrying import Carried
from tests.bench.migration.plots import plot_activation, plot_carrying
from tests.bench.migration.throughput import CHANGES_PER_MIN, Stretch, loss
from tests.bench.migration.throughput import TARGET as LOSS_TARGET
from tests.bench.migration.versions_cost import VersionCost
from tests.bench.reports import percentile, table, write_page

Measured = dict[str, Any]


def write_report(out: Path, measured: Measured) -> str:
    """Write everything from the figures and return the text.

    Args:
        out: Directory.
        measured: Figures by part, as ``tests.bench.migration.__main__`` measures them.
    """
    parts = [_head(measured)]
    if "activation" in measured:
        activated = [Activated(**facts) for facts in measured["activation"]]
        plot_activation(out / "migration-activation.png", activated)
        parts.append(_activation(activated))
    if "carrying" in measured:
        carried = _medians([[Carried(**facts) for facts in run] for run in measured["carrying"]])
        plot_carrying(out / "migration-carrying.png", carried, CARRYING_TARGET)
        parts.append(_carrying(carried, len(measured["carrying"])))
    if "process" in measured:
        parts.append(_process([Carried(**facts) for facts in measured["process"]["carried"]]))
    if "throughput" in measured:
        parts.append(_throughput([Stretch(**facts) for facts in measured["throughput"]]))
    if "versions" in measured:
        parts.append(_versions([VersionCost(**facts) for facts in measured["versions"]]))
    return write_page(out, "migration", "\n\n".join(parts), measured)


def _head(measured: Mapping[str, Any]) -> str:
    size = (
        "**Small sizes (`--quick`): the times mean little.**"
        if measured.get("quick")
        else "1M rows of state, 100 queries with 16 distinct windows and 12 distinct pairs of filters."
    )
    return f"""# Plans that change under load

Written by `make bench-migration` (`tests/bench/migration`); all figures are in `migration.json`.
{measured.get("machine", "")}. {size} Two generated streams,
80,000 rows per micro-batch, always more to read than the job takes."""


def _activation(found: Sequence[Activated]) -> str:
    within = sum(a.batches <= TARGET_BATCHES for a in found)
    rows = []
    for kind in dict.fromkeys(a.kind for a in found):
        own = [a for a in found if a.kind == kind]
        batches = [a.batches for a in own]
        rows.append(
            (
                kind,
                len(own),
                *(sum(b == n for b in batches) for n in (1, 2)),
                sum(b > 2 for b in batches),
                *_p50_p95([a.request_s * 1e3 for a in own], "{:,.0f}"),
                *_p50_p95([a.active_s for a in own], "{:.2f}"),
            )
        )
    header = (
        *("change", "made", "in 1 batch", "in 2", "in more"),
        *("request ms, p50", "p95", "active after s, p50", "p95"),
    )
    return f"""## A change is active within {TARGET_BATCHES} batches

Changes over HTTP, one after another. Counted from the last batch committed when the answer came: the next
one may have been running already, so that 2 is the least one can promise. **{within} of {len(found)} were
active within {TARGET_BATCHES} batches.**

{table(header, rows)}

![Batches until active](migration-activation.png)"""


def _carrying(found: Sequence[Carried], runs: int) -> str:
    worst = max(found, key=lambda c: c.ratio)
    kept = sum(c.ratio <= CARRYING_TARGET for c in found)
    return f"""## The batch that carries a migration

In the Spark job, from commit to commit, changes scripted six batches apart; medians of {runs} runs. The
ratio is to the median batch beside it, under the plan before or after, whichever takes longer: another
strategy's batches are its own. **{kept} of {len(found)} kinds take at most {CARRYING_TARGET} times the
median batch**; the worst is "{worst.kind}" with {worst.ratio:.2f}.

{_carried_table(found, "s", 1.0)}

![Batches with a migration](migration-carrying.png)"""


def _process(found: Sequence[Carried]) -> str:
    return f"""### The same without Spark

CPU time of the job's Python alone, both buckets one after the other, which is where a migration's work is.

{_carried_table(found, "CPU ms", 1e3)}"""


def _carried_table(found: Sequence[Carried], unit: str, factor: float) -> str:
    digits = 2 if factor == 1.0 else 0
    header = (
        "change",
        f"batch, {unit}",
        "median before",
        "after",
        "ratio",
        "the next batch",
        "rows held",
        "slices",
    )
    rows = [
        (
            c.kind,
            *(f"{factor * s:,.{digits}f}" for s in (c.batch_s, c.before_s, c.after_s)),
            f"{c.ratio:.2f}",
            f"{factor * c.next_s:,.{digits}f}",
            f"{c.state_rows:,}",
            c.slices,
        )
        for c in found
    ]
    return table(header, rows)


def _throughput(found: list[Stretch]) -> str:
    lost = loss(found)
    verdict = "within" if lost <= LOSS_TARGET else "**not** within"
    header = (
        *("stretch", "s", "rows/s", "batches", "batch s", "changes", "per min", "versions", "request ms"),
        *("service MB", "workers MB"),
    )
    rows = [
        (
            s.kind,
            f"{s.seconds:,.0f}",
            f"{s.rows_per_s:,.0f}",
            s.batches,
            f"{s.median_batch_s:.2f}",
            s.changes,
            f"{60 * s.changes / s.seconds:.0f}",
            s.versions,
            f"{s.median_request_s * 1e3:,.0f}",
            *(f"{size / 1e6:,.0f}" for size in (s.service_bytes, s.workers_bytes)),
        )
        for s in found
    ]
    return f"""## Throughput under {CHANGES_PER_MIN} changes per minute

One service, four stretches of equal length after a warm-up; every change is an HTTP request and a plan
version of its own, and 20 of the queries come and go. Changes cost **{lost:.1%} of the throughput at rest**
(wanted: at most {LOSS_TARGET:.0%}): {verdict} the bound. Memory is what belongs to the processes alone at
the end of a stretch: of the service, and of Spark's Python processes together.

{table(header, rows)}"""


def _versions(found: Sequence[VersionCost]) -> str:
    header = ("ms", *(f"{c.queries:,} queries" for c in found))

    def row(name: str, field: str) -> tuple[str, ...]:
        return (name, *(f"{getattr(c, field):,.1f}" for c in found))

    rows = [
        row("**request**", "request_ms"),
        row("build_plan", "build_ms"),
        row("dry_run", "dry_run_ms"),
        row("encode and insert", "insert_ms"),
        row("**driver**: packers compiled and pickled, per version", "packers_ms"),
        row("plan decoded, per version", "decode_ms"),
        row("control record encoded, per version", "record_ms"),
        row("**worker**: packers unpickled, per version and worker", "unpickle_ms"),
        row("**bucket**, this batch and the next, without its rows", "bucket_ms"),
        row("activate: compile and migrate", "activate_ms"),
        row("plan encoded into the state", "state_ms"),
        row("compile, the next batch", "compile_ms"),
    ]
    sizes = "; ".join(
        f"{c.queries:,} queries: plan {c.plan_bytes / 1e3:,.0f} kB, packers {c.packer_bytes / 1e3:,.0f} kB"
        for c in found
    )
    return f"""## What a plan version costs

CPU time, medians. {sizes}.

{table(header, rows)}"""


def _medians(runs: Sequence[Sequence[Carried]]) -> list[Carried]:
    """Return for each kind of change the run whose ratio is the median."""
    return [sorted(same, key=lambda c: c.ratio)[len(same) // 2] for same in zip(*runs, strict=True)]


def _p50_p95(values: Iterable[float], form: str) -> tuple[str, str]:
    ordered = sorted(values)
    return form.format(statistics.median(ordered)), form.format(percentile(ordered, 0.95))
