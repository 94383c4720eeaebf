"""The rates of a run.

    process    program started ............................................... program ended
    job                  engine up, job started ............ last result
    steady                          rows of two batches done .. last result

All three are taken of every engine alike. Rows are those of both streams, each counted once, however many
joins read it; where several joins read the same rows at their own pace, a row is done in parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.peers.job import Batch, Ran

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
