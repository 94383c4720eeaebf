"""What one run of one peer gave, and the rates taken from it.

    process    program started ............................................... program ended
    job                  engine up, job started ............ last result
    steady                          rows of two batches done .. last result

All three are taken of every engine alike. Rows are those of both streams, each counted once, however many
joins read it; where several joins read the same rows at their own pace, a row is done in parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.bench.peers.job import Batch, Ran

#: Batches left out of the steady state.
WARM_UP_BATCHES = 2


@dataclass(frozen=True, slots=True)
class Rates:
    """Rows per second; None where there is nothing to take it from."""

    process: float | None = None
    job: float | None = None
    steady: float | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of one peer.

    Attributes:
        workload: Name of the workload.
        peer: Name of the peer.
        run: Number of the run, from 1.
        scale: Part of the workload's rows that the whole bench was run with.
        share: Part of those that this peer was given.
        quick: Whether the workload was its small form.
        rows: Rows of both streams.
        queries: Queries that the peer was given.
        of_queries: Queries of the workload.
        error: Why there is no result, or the wrong one; empty if all is well.
        rates: Its rates.
        sluice: Those of Sluice in the same run, over the same rows, with all queries of the workload.
        results: Results of all its queries.
        peak_bytes: Most memory.
        batch_p50_s: Median time of a batch of the engine's own, the first two left out.
        batch_p99_s: 99th percentile.
        state_rows: Rows that Sluice held, over those that a query could still use: the worst batch.
        state_bytes: Bytes that Sluice held, over those of the latter's columns as plain Arrow: likewise.
        bench: When the bench began that this belongs to, UTC.
        versions: What ran.
        machine: What it ran on.
    """

    workload: str
    peer: str
    run: int
    scale: float
    share: float
    quick: bool
    rows: int
    queries: int
    of_queries: int
    error: str = ""
    rates: Rates = field(default_factory=Rates)
    sluice: Rates = field(default_factory=Rates)
    results: int = 0
    peak_bytes: int = 0
    batch_p50_s: float | None = None
    batch_p99_s: float | None = None
    state_rows: float | None = None
    state_bytes: float | None = None
    bench: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    machine: str = ""

    @property
    def key(self) -> tuple[str, str, int, float, float, bool]:
        """What a later measurement of the same replaces."""
        return (self.workload, self.peer, self.run, self.scale, self.share, self.quick)


def rates_of(ran: Ran, process_s: float, files: int) -> Rates:
    """Return the rates of a run.

    Args:
        ran: What the program answered.
        process_s: From its start to its end.
        files: Files per stream.
    """
    return Rates(
        process=ran.input_rows / process_s,
        job=ran.input_rows / ran.job_s,
        steady=_steady_rate(ran.batches, WARM_UP_BATCHES * ran.input_rows / files),
    )


def _steady_rate(joins: Sequence[Sequence[Batch]], warm_up_rows: float) -> float | None:
    """Return rows per second from the moment when every join has done the first rows."""
    starts = [_done_s(batches, warm_up_rows) for batches in joins]
    if not starts or any(s is None for s in starts):
        return None
    start_s = max(s for s in starts if s is not None)
    end_s = max(batches[-1].ended_s for batches in joins)
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
    if batch.began_s >= moment_s:
        return batch.rows
    if batch.ended_s <= moment_s:
        return 0.0
    return batch.rows * (batch.ended_s - moment_s) / (batch.ended_s - batch.began_s)


def batch_times_s(ran: Ran) -> list[float]:
    """Return the times of an engine's own batches but the first two of each join, ascending."""
    if not ran.paced:
        return []
    return sorted(
        batch.ended_s - batch.began_s for batches in ran.batches for batch in batches[WARM_UP_BATCHES:]
    )
