"""``python -m tests.bench.peers``: Sluice beside its peers on the same files; writes docs/bench/peers.md.

    python -m tests.bench.peers                                     everything, about three hours on 2 cores
    python -m tests.bench.peers --workload many-keys --peer duckdb  a part; the others stay as measured
    python -m tests.bench.peers --workload live                     the service: latency
    python -m tests.bench.peers --scale 0.2 --runs 1                a fifth of all rows, once
    python -m tests.bench.peers --report-only                       write the report again from the JSON file

A run goes through the workloads. In each, peers that are given the same part of the rows follow each other,
and Sluice goes over that part first, so that every ratio compares two runs over the same rows, minutes apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tests.bench.options import DOCS, Out, ReportOnly, Runs, chosen
from tests.bench.peers.live import observe
from tests.bench.peers.measure import NO_RATES, ROOT, Measurement, Setting, measure
from tests.bench.peers.peers import PEERS, REFERENCE, peers_of, share_of
from tests.bench.peers.report import add, read_report, write_report
from tests.bench.peers.workloads import WORKLOADS, Workload
from tests.bench.reports import shown

#: The name of what is not a workload: a service with live streams.
LIVE = "live"
#: What identifies a measurement.
KEY = ("workload", "peer", "run", "scale", "share")


def main(
    workload: Annotated[
        list[str] | None, typer.Option(help=f"Only: {', '.join([*WORKLOADS, LIVE])}.")
    ] = None,
    peer: Annotated[list[str] | None, typer.Option(help=f"Only these: {', '.join(PEERS)}.")] = None,
    runs: Runs = 3,
    scale: Annotated[float, typer.Option(min=1e-6, max=1, help="Part of all rows.")] = 1.0,
    report_only: ReportOnly = False,
    out: Out = DOCS,
    root: Annotated[Path, typer.Option(help="Where inputs go.")] = ROOT,
    cores: Annotated[int, typer.Option(help="Cores of every engine.")] = os.cpu_count() or 2,
    memory_gb: Annotated[int, typer.Option(help="Heap of a peer's JVM.")] = 10,
    timeout_s: Annotated[float, typer.Option(help="When a run is given up.")] = 400.0,
) -> None:
    """Measure the chosen peers and write the report; exit 1 if a count differs from DuckDB's."""
    names = [] if report_only else chosen(workload, [*WORKLOADS, LIVE], "workload")
    peers = chosen(peer, list(PEERS), "peer") if peer else None
    root.mkdir(parents=True, exist_ok=True)
    report = read_report(out)
    bench = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    setting = Setting(root, cores, memory_gb, timeout_s, scale, bench)
    hopeless: set[tuple[str, str]] = set()
    differ = False
    for run in range(1, runs + 1):
        for name in names:
            if name == LIVE:
                observed = observe(setting, run)
                _say(LIVE, observed, f"p50 {observed.get('latency_p50_s', 0.0):.3f} s")
                differ |= observed["error"].startswith("results differ")
                add(report["live"], observed, "run", "scale")
                write_report(out, report)
                continue
            for found in _measured(setting, WORKLOADS[name], peers, run, hopeless):
                _say(
                    f"{name}, {found['peer']}, {found['share']:g}",
                    found,
                    f"{shown(found['rates']['job'])} rows/s",
                )
                differ |= found["error"].startswith("results differ")
                add(report["measurements"], found, *KEY)
                write_report(out, report)
    typer.echo(write_report(out, report))
    if differ:
        raise typer.Exit(1)


def _measured(
    setting: Setting, workload: Workload, names: list[str] | None, run: int, hopeless: set[tuple[str, str]]
) -> Iterator[Measurement]:
    """Measure peers by their part of the rows, Sluice first; none that took too long before."""
    peers = [PEERS[name] for name in names] if names else peers_of(workload)
    shares = {peer.name: share_of(workload, peer) for peer in peers}
    for share in sorted({*shares.values()}, reverse=True):
        reference = measure(setting, workload, REFERENCE, share, run)
        sluice = NO_RATES if reference["error"] else reference["rates"]
        yield reference | {"sluice": sluice}
        for peer in peers:
            key = (workload.name, peer.name)
            if shares[peer.name] == share and peer is not REFERENCE and key not in hopeless:
                found = measure(setting, workload, peer, share, run)
                if found["error"].startswith("not done after"):
                    hopeless.add(key)
                yield found | {"sluice": sluice}


def _say(what: str, found: Measurement, result: str) -> None:
    typer.echo(f"{what}, run {found['run']}: {found['error'] or result}", err=True)


if __name__ == "__main__":
    typer.run(main)
