"""``python -m tests.bench.peers``: Sluice beside its peers on the same files; writes docs/bench/peers.md.

    python -m tests.bench.peers                                     everything, about three hours on 2 cores
    python -m tests.bench.peers --workload many-keys --peer duckdb  a part; the others stay as measured
    python -m tests.bench.peers --workload live                     the service: latency
    python -m tests.bench.peers --scale 0.2 --runs 1                a fifth of all rows, once
    python -m tests.bench.peers --quick --out DIR                   small sizes; its rates mean little
    python -m tests.bench.peers --report-only                       write the report again from the JSON file

In each run Sluice goes over the rows that the peers of that run are given, the same part of them, so that
every ratio compares two runs over the same rows, minutes apart (`plan`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tests.bench.peers import live
from tests.bench.peers.environments import ROOT
from tests.bench.peers.measure import Setting, measure
from tests.bench.peers.measurement import Measurement, Rates
from tests.bench.peers.peers import PEERS, REFERENCE
from tests.bench.peers.plan import Group, given_up, groups
from tests.bench.peers.report import Report, read_report, write_report
from tests.bench.peers.workloads import WORKLOADS

Named = TypeVar("Named")
#: The name of what is no workload: a service with live streams.
LIVE = "live"
#: A run is given up after so long; whole and quick.
_TIMEOUT_S, _QUICK_TIMEOUT_S = 400.0, 90.0


def main(
    workload: Annotated[
        list[str] | None, typer.Option(help=f"Only: {', '.join([*WORKLOADS, LIVE])}.")
    ] = None,
    peer: Annotated[list[str] | None, typer.Option(help=f"Only these: {', '.join(PEERS)}.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs; medians are reported.")] = 3,
    scale: Annotated[float, typer.Option(min=1e-6, max=1, help="Part of all rows.")] = 1.0,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, one run.")] = False,
    report_only: Annotated[bool, typer.Option("--report-only", help="Measure nothing.")] = False,
    out: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("docs/bench"),
    root: Annotated[Path, typer.Option(help="Where inputs go.")] = ROOT,
    cores: Annotated[int, typer.Option(help="Cores of every engine.")] = os.cpu_count() or 2,
    memory_gb: Annotated[int, typer.Option(help="Heap of a peer's JVM.")] = 10,
    timeout_s: Annotated[float | None, typer.Option(help="When a run is given up.")] = None,
) -> None:
    """Measure the chosen peers and write the report; exit 1 if a count differs from DuckDB's."""
    chosen = _chosen(workload or [*WORKLOADS, LIVE], {**WORKLOADS, LIVE: None}, "workload")
    peers = _chosen(peer, PEERS, "peer") if peer else None
    out.mkdir(parents=True, exist_ok=True)
    root.mkdir(parents=True, exist_ok=True)
    report = read_report(out)
    if report_only:
        typer.echo(write_report(out, report))
        return
    setting = Setting(
        root=root,
        cores=cores,
        memory_gb=memory_gb,
        timeout_s=timeout_s or (_QUICK_TIMEOUT_S if quick else _TIMEOUT_S),
        scale=scale,
        quick=quick,
        bench=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}",
    )
    runs = 1 if quick else runs
    planned = groups([w for w in chosen if w is not None], peers, runs, quick=quick)
    differ = False
    for group in planned:
        for found in _measured(setting, group, report):
            differ |= found.error.startswith("results differ")
            report = report.with_measurement(found)
            write_report(out, report)
    for run in range(1, 1 + (runs if None in chosen else 0)):
        observed = live.observe(setting, run)
        latency_s = observed.latency_p50_s
        typer.echo(f"{LIVE} {run}: {observed.error or f'p50 {latency_s:.3f} s'}")
        differ |= observed.error.startswith("results differ")
        report = report.with_live(observed)
        write_report(out, report)
    typer.echo(write_report(out, report))
    if differ:
        raise typer.Exit(1)


def _measured(setting: Setting, group: Group, report: Report) -> Iterator[Measurement]:
    """Measure the peers of a group, and Sluice before them."""
    workload, share, run = group.workload, group.share, group.run
    reference = _say(measure(setting, workload, REFERENCE, share, run))
    rates = Rates() if reference.error else reference.rates
    yield replace(reference, sluice=rates)
    hopeless = given_up(report.measured, setting.bench)
    for peer in group.peers:
        if peer is not REFERENCE and (workload.name, peer.name) not in hopeless:
            yield replace(_say(measure(setting, workload, peer, share, run)), sluice=rates)


def _say(found: Measurement) -> Measurement:
    rate = "" if found.rates.job is None else f"{found.rates.job:,.0f} rows/s"
    typer.echo(f"{found.workload} {found.run} {found.share:g} {found.peer}: {found.error or rate}")
    return found


def _chosen(names: Sequence[str], known: Mapping[str, Named], kind: str) -> list[Named]:
    if unknown := [name for name in names if name not in known]:
        raise typer.BadParameter(f"no such {kind}: {', '.join(unknown)}")
    return [known[name] for name in names]


if __name__ == "__main__":
    typer.run(main)
