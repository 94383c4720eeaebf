"""One peer on one workload: its input, its process, its counts against DuckDB's, its rates."""

from __future__ import annotations

import re
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.bench.peers.environments import NotInstalled, interpreter
from tests.bench.peers.expected import differences, expected_counts
from tests.bench.peers.inputs import write_csv, write_streams
from tests.bench.peers.job import Job, Ran, read_answer, write_job
from tests.bench.peers.measurement import Measurement, batch_times_s, rates_of
from tests.bench.peers.peers import Peer
from tests.bench.peers.sluice_join import run_sluice
from tests.bench.peers.state import state_ratios
from tests.bench.peers.workloads import WORKLOADS, Query, Streams, Workload
from tests.bench.processes import Finished, ProgramFailed, run_program
from tests.bench.reports import machine, percentile


@dataclass(frozen=True, slots=True)
class Setting:
    """What all measurements of a bench have in common.

    Attributes:
        root: Where inputs and scratch directories go.
        cores: Cores of every engine.
        memory_gb: Heap of a peer's JVM.
        timeout_s: When a run is given up.
        scale: Part of the workloads' rows.
        quick: Whether workloads are taken in their small form.
        bench: When the bench began, UTC.
    """

    root: Path
    cores: int
    memory_gb: int
    timeout_s: float
    scale: float
    quick: bool
    bench: str


def measure(setting: Setting, workload: Workload, peer: Peer, share: float, run: int) -> Measurement:
    """Run a peer once; what goes wrong is part of the answer."""
    given = WORKLOADS[peer.of] if peer.of else workload
    given = given.quick() if setting.quick else given
    streams = given.streams.first(setting.scale * share)
    queries = given.asked(peer.sharing)
    measured = Measurement(
        workload=workload.name,
        peer=peer.name,
        run=run,
        scale=setting.scale,
        share=share,
        quick=setting.quick,
        rows=2 * streams.rows,
        queries=len(queries),
        of_queries=len(given.queries),
        bench=setting.bench,
        machine=machine(),
    )
    directory = write_streams(setting.root / "inputs", streams).resolve()
    wanted = expected_counts(directory, streams, queries)
    try:
        with tempfile.TemporaryDirectory(dir=setting.root, ignore_cleanup_errors=True) as scratch:
            ran, finished = _run(setting, peer, directory, Path(scratch), given, streams, queries)
    except (ProgramFailed, NotInstalled) as problem:
        return replace(measured, error=_without_paths(str(problem)))
    wrong = differences(ran.results, wanted)
    if ran.input_rows != measured.rows:
        wrong = f"{ran.input_rows:,} rows read; {wrong}"
    times_s = batch_times_s(ran)
    state_rows, state_bytes = state_ratios(directory, queries, ran.held)
    return replace(
        measured,
        error=f"results differ: {wrong}" if wrong else "",
        rates=rates_of(ran, finished.seconds, streams.files),
        results=sum(ran.results.values()),
        peak_bytes=finished.peak_bytes,
        batch_p50_s=percentile(times_s, 0.5),
        batch_p99_s=percentile(times_s, 0.99),
        state_rows=state_rows,
        state_bytes=state_bytes,
        versions=dict(ran.versions),
    )


def _run(
    setting: Setting,
    peer: Peer,
    directory: Path,
    scratch: Path,
    given: Workload,
    streams: Streams,
    queries: Sequence[Query],
) -> tuple[Ran, Finished]:
    # Native joins have their own; Sluice and the limits take what is a batch of Sluice.
    options = {} if peer.kind == "peer" else {"files_per_batch": given.files_at_once}
    options |= peer.options
    python = interpreter(peer.environment) if peer.environment else Path(sys.executable)
    if peer.environment:
        options["csv"] = str(write_csv(directory, header=peer.environment == "pathway"))
    job = Job(
        directory=str(directory),
        scratch=str(scratch.resolve()),
        streams=streams,
        queries=tuple(queries),
        cores=setting.cores,
        memory_gb=setting.memory_gb,
        options=options,
    )
    if not peer.program:
        return run_sluice(job, setting.timeout_s)
    path = scratch / "job.json"
    write_job(path, job)
    command = [str(python), "-m", f"tests.bench.peers.{peer.program}", str(path)]
    finished = run_program(command, setting.timeout_s)
    return read_answer(finished.stdout), finished


def _without_paths(text: str) -> str:
    """Return the telling lines of an error, without this machine's directories and name."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    # The frames of a stack have errors' names in them, too, and say less than the causes between them.
    telling = [
        line
        for line in lines
        if re.search(r"error|exception|killed|memory", line, re.IGNORECASE) and not line.startswith("at ")
    ]
    chosen = [lines[0], *(telling or lines)[-3:]] if lines else ["no message"]
    message = "; ".join(dict.fromkeys(chosen)).replace(socket.gethostname(), "localhost")
    return re.sub(r"(?:/[\w.@+-]+){2,}", "...", message)[:600]
