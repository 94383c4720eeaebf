"""``python -m tests.bench.peers``: Sluice beside its peers on the same files; writes docs/bench/peers.md.

    python -m tests.bench.peers                                     everything, many hours on 2 cores
    python -m tests.bench.peers --workload many-keys --peer duckdb  a part; the others stay as measured
    python -m tests.bench.peers --scale 0.2 --runs 1                a fifth of all rows, once
    python -m tests.bench.peers --quick --out DIR                   small sizes; its rates mean little
    python -m tests.bench.peers --report-only                       write the report again from the JSON file

In each run Sluice goes over the rows that the peers of that run are given, the same part of them, so that
every ratio compares two runs over the same rows, minutes apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tests.bench.peers.environments import ROOT
from tests.bench.peers.measure import Setting, measure, share_of
from tests.bench.peers.measurement import Measurement, Rates
from tests.bench.peers.peers import PEERS, REFERENCE, Peer
from tests.bench.peers.report import merge, read_report, write_report
from tests.bench.peers.workloads import WORKLOADS, Workload

Named = TypeVar("Named")


def main(
    workload: Annotated[list[str] | None, typer.Option(help=f"Only these: {', '.join(WORKLOADS)}.")] = None,
    peer: Annotated[list[str] | None, typer.Option(help=f"Only these: {', '.join(PEERS)}.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs; medians are reported.")] = 3,
    scale: Annotated[float, typer.Option(min=1e-6, max=1, help="Part of all rows.")] = 1.0,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, one run.")] = False,
    report_only: Annotated[bool, typer.Option("--report-only", help="Measure nothing.")] = False,
    out: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("docs/bench"),
    root: Annotated[Path, typer.Option(help="Where inputs go.")] = ROOT,
    cores: Annotated[int, typer.Option(help="Cores of every engine.")] = os.cpu_count() or 2,
    memory_gb: Annotated[int, typer.Option(help="Heap of a peer's JVM.")] = 10,
    timeout_s: Annotated[float, typer.Option(help="When a peer is given up.")] = 3600.0,
) -> None:
    """Measure the chosen peers and write the report; exit 1 if a count differs from DuckDB's."""
    workloads = _chosen(workload or list(WORKLOADS), WORKLOADS, "workload")
    peers = _chosen(peer, PEERS, "peer") if peer else None
    out.mkdir(parents=True, exist_ok=True)
    root.mkdir(parents=True, exist_ok=True)
    setting = Setting(root, cores, memory_gb, timeout_s, scale, quick)
    measured = read_report(out)
    differ = False
    for run in range(1, 1 + (0 if report_only else 1 if quick else runs)):
        for one in workloads:
            for found in _one_run(setting, one, peers or _peers_of(one), run):
                differ |= found.error.startswith("results differ")
                measured = merge(measured, found)
                write_report(out, measured)
    typer.echo(write_report(out, measured))
    if differ:
        raise typer.Exit(1)


def _one_run(setting: Setting, workload: Workload, peers: Sequence[Peer], run: int) -> Iterator[Measurement]:
    """Measure peers once, and before them Sluice over the part of the rows that they are given."""
    shares = {p.name: 1.0 if setting.quick else share_of(workload, p) for p in peers}
    for share in sorted({*shares.values()}, reverse=True):
        reference = _say(measure(setting, workload, REFERENCE, share, run))
        rates = Rates() if reference.error else reference.rates
        yield replace(reference, sluice=rates)
        for peer in peers:
            if shares[peer.name] == share and peer is not REFERENCE:
                yield replace(_say(measure(setting, workload, peer, share, run)), sluice=rates)


def _say(found: Measurement) -> Measurement:
    rate = "" if found.rates.job is None else f"{found.rates.job:,.0f} rows/s"
    typer.echo(f"{found.workload} {found.run} {found.share:g} {found.peer}: {found.error or rate}")
    return found


def _peers_of(workload: Workload) -> list[Peer]:
    return [PEERS[name] for name in workload.peers] if workload.peers else list(PEERS.values())


def _chosen(names: Sequence[str], known: Mapping[str, Named], kind: str) -> list[Named]:
    if unknown := [name for name in names if name not in known]:
        raise typer.BadParameter(f"no such {kind}: {', '.join(unknown)}")
    return [known[name] for name in names]


if __name__ == "__main__":
    typer.run(main)
