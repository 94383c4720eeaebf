"""Batch size during a backlog: the size with the highest throughput among batches near a target duration.

A batch has a fixed cost in time and a cost per row. A larger batch spreads the fixed cost over more rows and
so increases the throughput, but it takes longer and needs more memory. The size therefore doubles while a
batch takes clearly less than a target duration, and halves if a batch takes clearly more. After doubling, a
batch takes at most twice the time, that is, 1.4 targets:

         doubles             stays             halves
    |----------------|-------------------|--------------->  seconds of a full batch
    0            0.7 target          1.5 target

If the time is linear in the rows, the size cannot swing between two values: after a batch of more than 1.5
targets, half the rows still take more than 0.75 targets, too long to double again. The time is not linear,
for example, with few keys, because all rows of a key in a batch join with each other. Each change of the size
is therefore on trial: it is undone if it lowers the rows per second too much. A size that gained no
throughput or took too long is refused for some batches. The number of these batches doubles each time that
the size is refused again, so that noise around a limit does not make the size swing.

Only full batches are timed, that is, batches that left waiting rows for the next batch. A service without a
backlog puts all rows that have arrived into the next batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

#: Number of rows in the first batches of a process, and in a batch whose size must not depend on timing. Two
#: cores process these rows in half a second.
FIRST_ROWS: Final = 1_000_000
#: Minimum size in rows. In the time that one batch costs without rows, two cores could process ten times as
#: many rows.
FLOOR_ROWS: Final = 100_000
#: Number of first batches with rows that are not timed, because they load code and the JVM compiles it. Each
#: takes 2 to 8 s.
WARM_UP_BATCHES: Final = 2

#: The size doubles if a batch takes at most this multiple of the target. The multiple is less than half of
#: ``_SLOW``.
_FAST: Final = 0.7
#: The size halves if a batch takes more than this multiple of the target.
_SLOW: Final = 1.5
#: A doubling is kept if it multiplies the rows per second by at least this factor. With a fixed cost of
#: 0.25 s per batch and the default target, the actual factor is 1.1 or more, minus variations in the speed
#: of the machine. This least factor is more than 2 * _FAST / _SLOW, so that no doubling is kept whose batches
#: would then be halved.
_GAIN: Final = 0.95
#: A halving is kept if it multiplies the rows per second by at least this factor. If the factor was lower,
#: more than half of a batch's time was fixed cost, which smaller batches pay more often.
_LOSS: Final = 2 / 3
#: A batch is compared with the batch before the change only if their numbers of rows differ by this factor.
#: Large files may fill batches of the old and the new size with the same number of rows.
_COMPARABLE: Final = 1.5
#: Number of full batches until a refused size is tried again, because input and machine change: the number
#: after the first refusal, and the maximum.
_REST: Final = 8
_LONGEST_REST: Final = 256


@dataclass(frozen=True, slots=True)
class Trial:
    """A change of the size that may still be undone.

    Attributes:
        size: Size before the change.
        rows: Number of rows of the last batch before the change.
        rows_per_s: Rows per second of the last batch before the change.
    """

    size: int
    rows: int
    rows_per_s: float


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Size of the next full batch, and the state from which later sizes are chosen.

    >>> size = BatchSize.first(ceiling=8_000_000, target_s=2.0)
    >>> [size.rows, size.after(1_000_000, 0.5).rows, size.after(1_000_000, 1.5).rows]
    [1000000, 2000000, 1000000]

    Attributes:
        floor: Minimum size.
        ceiling: Maximum size.
        target_s: Seconds that a full batch should take; 0 fixes the size at the ceiling.
        rows: Size of the next full batch, in rows.
        trial: The last change of the size until it is kept or undone; otherwise None.
        doubtful: Whether the last batch was too slow. The size changes only after two slow batches in a row,
            so that a single delay does not change it.
        refused: The size that was refused last, because it gained no throughput or took too long; 0: none.
        rest: Number of full batches until the refused size may be tried again.
        next_rest: Value of ``rest`` if the refused size is refused once more.
    """

    floor: int
    ceiling: int
    target_s: float
    rows: int
    trial: Trial | None = None
    doubtful: bool = False
    refused: int = 0
    rest: int = 0
    next_rest: int = _REST

    def __post_init__(self) -> None:
        if not 1 <= self.floor <= self.rows <= self.ceiling:
            raise ValueError(f"{self.rows} rows are not between {self.floor} and {self.ceiling}")
        if self.target_s < 0:
            raise ValueError(f"a batch cannot take {self.target_s} s")

    @classmethod
    def first(cls, *, ceiling: int, target_s: float, shrinks: bool = True) -> BatchSize:
        """Return the size before any batch was timed.

        Args:
            ceiling: Maximum number of rows of a batch.
            target_s: Seconds that a full batch should take; 0 fixes the size at the ceiling.
            shrinks: Whether the size may fall below the initial size, so that results come sooner.
        """
        rows = min(FIRST_ROWS, ceiling) if target_s else ceiling
        return cls(min(FLOOR_ROWS, rows) if shrinks else rows, ceiling, target_s, rows)

    def after(self, rows: int, seconds: float) -> BatchSize:
        """Return the size after a full batch.

        Args:
            rows: Number of rows of the full batch.
            seconds: Seconds from the admission of the batch to the admission of the next batch.
        """
        if not self.target_s:
            return self
        now = replace(self, rest=max(self.rest - 1, 0))
        if now.trial is not None:
            if not now._paid(now.trial, rows, seconds):
                return now._undone(now.trial) if now.doubtful else replace(now, doubtful=True)
            now = now._kept(now.trial)
        # A smaller size could not split a single file that has more rows than the size.
        if seconds > _SLOW * now.target_s and rows <= now.rows:
            if not now.doubtful:
                return replace(now, doubtful=True)
            return now._changed(max(now.rows // 2, now.floor), rows, seconds)
        now = replace(now, doubtful=False)
        if seconds <= _FAST * now.target_s:
            return now._changed(min(now.rows * 2, now.ceiling), rows, seconds)
        return now

    def _paid(self, trial: Trial, rows: int, seconds: float) -> bool:
        fewest, most = sorted((trial.rows, rows))
        if most < _COMPARABLE * fewest:
            return True
        wanted = _GAIN if self.rows > trial.size else _LOSS
        return rows >= wanted * trial.rows_per_s * seconds

    def _kept(self, trial: Trial) -> BatchSize:
        kept = replace(self, trial=None, doubtful=False)
        return kept if self.rows > trial.size else kept._refusing(trial.size)

    def _undone(self, trial: Trial) -> BatchSize:
        return replace(self, rows=trial.size, trial=None, doubtful=False)._refusing(self.rows)

    def _refusing(self, size: int) -> BatchSize:
        rest = self.next_rest if size == self.refused else _REST
        return replace(self, refused=size, rest=rest, next_rest=min(2 * rest, _LONGEST_REST))

    def _changed(self, size: int, rows: int, seconds: float) -> BatchSize:
        if size == self.rows or (size == self.refused and self.rest):
            return replace(self, doubtful=False)
        return replace(self, rows=size, trial=Trial(self.rows, rows, rows / seconds), doubtful=False)


@dataclass(frozen=True, slots=True)
class _Running:
    """A batch in progress: its number, rows, whether it is timed, and when it was admitted (monotonic, s)."""

    batch: int
    rows: int
    counts: bool
    since_s: float


class BatchSizing:
    """Measures how long the batches of one process take, and chooses the size of the next batch.

    Spark asks the source for the next batch as soon as a batch is done. The time between two such calls is
    therefore the time of a batch from admission to commit.

    Args:
        first: Size of the first batch.
    """

    def __init__(self, first: BatchSize) -> None:
        self.fixed_rows = first.rows
        # Bytes per row are not known yet, so the first size is assumed to fit into memory.
        self._room = first.rows
        self._size = first
        self._cold = WARM_UP_BATCHES
        self._running: _Running | None = None

    @property
    def rows(self) -> int:
        """Rows that the next batch may take."""
        return min(self._size.rows, max(self._room, self.fixed_rows))

    @property
    def grows(self) -> bool:
        """Return whether throughput and duration call for a batch larger than the first size."""
        return self._size.rows > self.fixed_rows

    def has_room(self, rows: int) -> None:
        """Note how many rows fit into memory; the first size is allowed even if fewer rows fit."""
        self._room = rows

    def admitted(self, batch: int, rows: int, *, full: bool, now_s: float) -> None:
        """Note that a batch was admitted.

        Args:
            batch: Number of the batch.
            rows: Number of the batch's rows that counted toward the size.
            full: Whether the batch left waiting rows for the next batch, and did no other work than
                processing rows.
            now_s: Time of a monotonic clock, seconds.
        """
        self._running = _Running(batch, rows, full and not self._cold, now_s)
        if rows and self._cold:
            self._cold -= 1

    def asked(self, batch: int, *, now_s: float) -> None:
        """Note that Spark asks for a batch, which means that the previous batch is done.

        Args:
            batch: Number of the next batch.
            now_s: Time of a monotonic clock, seconds.
        """
        done, self._running = self._running, None
        if done is not None and done.counts and done.batch + 1 == batch and now_s > done.since_s:
            self._size = self._size.after(done.rows, now_s - done.since_s)
