"""What the bench asks of a process, and what the process answers: JSON files in, one JSON line out.

Standard library only: peers run in environments of their own, which have nothing else of ours.

The rates that are taken from an answer:

    process    program started ............................................... program ended
    job                  engine up, job started ............ last result
    steady                          rows of two batches done .. last result

All three are taken of every engine alike. Rows are those of all streams, each counted once, however many
joins read it; where several joins read the same rows at their own pace, a row is done in parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.peers.workloads import Query, Streams


@dataclass(frozen=True, slots=True)
class Job:
    """One engine, one input, some queries.

    Attributes:
        directory: Of the streams' files.
        scratch: A fresh directory for state, checkpoints and results.
        streams: What the files hold.
        queries: What is asked.
        cores: Cores, and partitions of every shuffle.
        memory_gb: Heap of a JVM, or what stands for it.
        options: The peer's own.
    """

    directory: str
    scratch: str
    streams: Streams
    queries: tuple[Query, ...]
    cores: int
    memory_gb: int
    options: dict[str, Any] = field(default_factory=dict)


class Batch(NamedTuple):
    """Rows of all streams, and when they were worked on, by any clock that the run's other batches have."""

    began_s: float
    ended_s: float
    rows: int


@dataclass(frozen=True, slots=True)
class Ran:
    """What a process did.

    Attributes:
        results: Results by query.
        input_rows: Rows of all streams that it read, once.
        job_s: From the start of the job to its end, the engine being up.
        batches: By join, where several read the same rows; empty where nothing happens in batches.
        paced: Whether the batches are the engine's own, so that the time of one says something.
        versions: Versions of what ran, by name.
    """

    results: Mapping[str, int]
    input_rows: int
    job_s: float
    batches: Sequence[Sequence[Batch]] = ()
    paced: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)


def batches_between(began_s: float, ends: Iterable[tuple[float, int]]) -> list[Batch]:
    """Return batches that follow each other, from the end of each and its rows."""
    found = []
    for ended_s, rows in ends:
        found.append(Batch(began_s, ended_s, rows))
        began_s = ended_s
    return found


def write_job(path: Path, job: Job) -> None:
    """Write a job for ``read_job``."""
    path.write_text(json.dumps(asdict(job)), encoding="utf-8")


def read_job(path: str) -> Job:
    """Return the job of a file."""
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    document["streams"] = Streams(**document["streams"])
    document["queries"] = tuple(Query(**q) for q in document["queries"])
    return Job(**document)


def answer(ran: Ran) -> None:
    """Print what a process did, as the last line of its output."""
    print("\n" + json.dumps(asdict(ran)), flush=True)


def read_answer(stdout: str) -> Ran:
    """Return what ``answer`` printed."""
    document = json.loads(stdout.strip().splitlines()[-1])
    document["batches"] = [[Batch(*b) for b in batches] for batches in document["batches"]]
    return Ran(**document)


#: Batches left out of the steady state.
WARM_UP_BATCHES = 2
KINDS = ("process", "job", "steady")


def rates_of(ran: Ran, process_s: float, files: int) -> dict[str, float | None]:
    """Return rows per second by kind; None where there is nothing to take it from.

    Args:
        ran: What the program answered.
        process_s: From its start to its end.
        files: Files per stream.
    """
    steady = _steady_rate(ran.batches, WARM_UP_BATCHES * ran.input_rows / files)
    return {"process": ran.input_rows / process_s, "job": ran.input_rows / ran.job_s, "steady": steady}


def _steady_rate(joins: Sequence[Sequence[Batch]], warm_up_rows: float) -> float | None:
    """Return rows per second from the moment when every join has done the first rows."""
    starts = [_done_s(batches, warm_up_rows) for batches in joins]
    known = [s for s in starts if s is not None]
    if not known or len(known) < len(starts):
        return None
    start_s, end_s = max(known), max(batches[-1].ended_s for batches in joins)
    rows = sum(_rows_after(batch, start_s) for batches in joins for batch in batches) / len(joins)
    return rows / (end_s - start_s) if rows else None


def _done_s(batches: Sequence[Batch], rows: float) -> float | None:
    done = 0
    for batch in batches:
        done += batch.rows
        if done >= rows * (1 - 1e-9):
            return batch.ended_s
    return None


def _rows_after(batch: Batch, moment_s: float) -> float:
    """Return the rows of a batch that were done after a moment, as if they came evenly."""
    left_s = batch.ended_s - max(batch.began_s, moment_s)
    return batch.rows * max(left_s, 0.0) / (batch.ended_s - batch.began_s)


def batch_times_s(ran: Ran) -> list[float]:
    """Return the times of an engine's own batches but the first two of each join."""
    batches = (batch for of_join in ran.batches for batch in of_join[WARM_UP_BATCHES:])
    return [batch.ended_s - batch.began_s for batch in batches] if ran.paced else []
