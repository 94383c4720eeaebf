"""One peer on one workload: its input, its process, its counts against DuckDB's, its rates.

A measurement is a row of the report:

    workload, peer, run, scale, share     what ran; ``share`` is the part of the rows that the peer was given
    rows, queries, of_queries             of all streams; given; of the workload
    error                                 why there is no result, or the wrong one; empty if all is well
    rates, sluice                         its rates; those of Sluice in the same run over the same rows
    results, peak_bytes                   of all queries; most memory
    batch_p50_s, batch_p99_s              of the engine's own batches but the first two of each join
    state_rows, state_bytes               of Sluice, over the least that is needed: the worst batch
    bench, versions, machine              when the bench began; what ran, and on what
"""

from __future__ import annotations

import re
import socket
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.peers.batch_join import differences, expected_counts
from tests.bench.peers.inputs import write_csv, write_streams
from tests.bench.peers.job import KINDS, Job, Ran, batch_times_s, rates_of, read_answer, write_job
from tests.bench.peers.peers import Peer
from tests.bench.peers.sluice_join import run_sluice
from tests.bench.peers.workloads import WORKLOADS, Workload
from tests.bench.processes import Finished, ProgramFailed, run_program
from tests.bench.reports import hardware

Measurement = dict[str, Any]
#: What a measurement of something that failed has.
NO_RATES: dict[str, float | None] = dict.fromkeys(KINDS)
#: Ignored by git: environments here, inputs beside them.
ROOT = Path(".bench")
_INSTALLING_S = 1800.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What all measurements of a bench have in common.

    Attributes:
        root: Where inputs and scratch directories go.
        cores: Cores of every engine.
        memory_gb: Heap of a peer's JVM.
        timeout_s: When a run is given up.
        scale: Part of the workloads' rows.
        bench: When the bench began, UTC.
    """

    root: Path
    cores: int
    memory_gb: int
    timeout_s: float
    scale: float
    bench: str


def measure(setting: Setting, workload: Workload, peer: Peer, share: float, run: int) -> Measurement:
    """Run a peer once; what goes wrong is part of the answer."""
    given = WORKLOADS[peer.of] if peer.of else workload
    streams = given.streams.first(setting.scale * share)
    queries = given.asked(peer.queries)
    measured: Measurement = {
        "workload": workload.name,
        "peer": peer.name,
        "run": run,
        "scale": setting.scale,
        "share": share,
        "rows": streams.count * streams.rows,
        "queries": len(queries),
        "of_queries": len(given.queries),
        "error": "",
        "rates": NO_RATES,
        "bench": setting.bench,
        "machine": hardware(),
    }
    directory = write_streams(setting.root / "inputs", streams).resolve()
    wanted = expected_counts(directory, streams, queries)
    options = {"files_per_batch": given.files_at_once} | peer.options
    with tempfile.TemporaryDirectory(dir=setting.root, ignore_cleanup_errors=True) as scratch:
        job = Job(
            directory=str(directory),
            scratch=str(Path(scratch).resolve()),
            streams=streams,
            queries=tuple(queries),
            cores=setting.cores,
            memory_gb=setting.memory_gb,
            options=options,
        )
        try:
            ran, finished, state = _run(peer, job, setting.timeout_s)
        except ProgramFailed as problem:
            return measured | {"error": _without_paths(str(problem))}
    wrong = differences(ran.results, wanted)
    if ran.input_rows != measured["rows"]:
        wrong = f"{ran.input_rows:,} rows read; {wrong}"
    times_s = batch_times_s(ran)
    p50_s, p99_s = np.quantile(times_s, (0.5, 0.99)).tolist() if times_s else (None, None)
    return measured | {
        "error": f"results differ: {wrong}" if wrong else "",
        "rates": rates_of(ran, finished.seconds, streams.files),
        "results": sum(ran.results.values()),
        "peak_bytes": finished.peak_bytes,
        "batch_p50_s": p50_s,
        "batch_p99_s": p99_s,
        "versions": dict(ran.versions),
        **state,
    }


def _run(peer: Peer, job: Job, timeout_s: float) -> tuple[Ran, Finished, dict[str, float]]:
    if not peer.program:
        return run_sluice(job, timeout_s)
    python = sys.executable
    if peer.environment:
        python = str(_interpreter(peer.environment))
        copies = write_csv(Path(job.directory), job.streams, header=peer.environment == "pathway")
        job.options["csv"] = str(copies)
    path = Path(job.scratch) / "job.json"
    write_job(path, job)
    finished = run_program([python, "-m", f"tests.bench.peers.{peer.program}", str(path)], timeout_s)
    return read_answer(finished.stdout), finished, {}


@cache
def _interpreter(name: str) -> Path:
    """Return the Python of a virtual environment, which is made again where ``<name>.txt`` changed.

    Raises:
        ProgramFailed: pip did not manage.
    """
    requirements = Path(__file__).with_name(f"{name}.txt")
    directory = (ROOT / name).resolve()
    python, stamp = str(directory / "bin" / "python"), directory / "installed.txt"
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        print(f"installing what {requirements.name} names ...", flush=True)
        run_program([sys.executable, "-m", "venv", "--clear", str(directory)], _INSTALLING_S)
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        run_program([*pip, "-r", str(requirements)], _INSTALLING_S)
        stamp.write_text(requirements.read_text())
    return Path(python)


def _without_paths(text: str) -> str:
    """Return the telling lines of an error, without this machine's directories and name."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The frames of a stack have errors' names in them, too, and say less than the causes between them.
    causes = [line for line in lines if re.search(r"error|exception|killed|memory", line, re.IGNORECASE)]
    causes = [line for line in causes if not line.startswith("at ")]
    message = "; ".join(dict.fromkeys([*lines[:1], *(causes or lines)[-3:]]))
    return re.sub(r"(?:/[\w.@+-]+){2,}", "...", message.replace(socket.gethostname(), "localhost"))[:600]
