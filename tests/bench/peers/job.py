"""What the bench asks of a process, and what the process answers: JSON files in, one JSON line out.

Standard library only: peers run in environments of their own, which have nothing else of ours.
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
        directory: Of both streams' files.
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
    """Rows of both streams, and when they were worked on, by any clock that the run's other batches have."""

    began_s: float
    ended_s: float
    rows: int


@dataclass(frozen=True, slots=True)
class Ran:
    """What a process did.

    Attributes:
        results: Results by query.
        input_rows: Rows of both streams that it read, once.
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
