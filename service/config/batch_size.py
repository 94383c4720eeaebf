"""The size of a batch while a backlog waits: as many rows as pay, in about the time one can live with.

A batch costs time whatever is in it, and time for each row. The more rows share the first part, the more
rows a second; but the longer takes the batch, and the more memory. So the size doubles while a batch takes
clearly less than a target, and halves if it clearly takes more. Twice the rows take at most twice the time,
1.4 targets:

         doubles             stays             halves
    |----------------|-------------------|--------------->  seconds of a full batch
    0            0.7 target          1.5 target

Time that is linear in rows cannot swing between two sizes: half of a batch beyond 1.5 targets still takes
more than 0.75. Where it is not linear, as with few keys whose rows all meet in a batch, each step is on
trial: it is
undone if rows got slower by it. Neither a size that did not pay nor one that took too long is tried again for
a while, which gets longer with each time: noise about a limit would make sizes swing.

Only a batch that was cut while more waited says something. A service that has caught up takes what came.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

#: What a process begins with, and what a batch takes where its size must not depend on time: half a second
#: of two cores.
FIRST_ROWS: Final = 1_000_000
#: No batch is made smaller: two cores do ten times as much in the time that any batch costs.
FLOOR_ROWS: Final = 100_000
#: Two batches with rows see code that was not loaded, and that the JVM has not compiled: 2 to 8 s each.
WARM_UP_BATCHES: Final = 2

#: Part of the target up to which a batch doubles: less than half of what makes it halve.
_FAST: Final = 0.7
#: Part of the target beyond which it halves.
_SLOW: Final = 1.5
#: Rows a second after doubling, over those before, for it to be kept. With a fixed cost of 0.25 s a batch and
#: the default target they are 1.1 and more, less what the machine's speed varies by. More than 2 * _FAST /
#: _SLOW, so that no doubling is kept whose batches are to be halved.
_GAIN: Final = 0.95
#: The same after halving. Below it more than half of the time did not depend on rows, which halving wastes.
_LOSS: Final = 2 / 3
#: Two batches are compared if their rows differ by this factor: large files may fill both sizes alike.
_COMPARABLE: Final = 1.5
#: Full batches after which a size that did not pay is tried again, and at most: input and machine change.
_REST: Final = 8
_LONGEST_REST: Final = 256


@dataclass(frozen=True, slots=True)
class Trial:
    """A step of the size that has to prove itself.

    Attributes:
        size: Size before.
        rows: Rows of the batch that asked for the step.
        rows_per_s: Its rate.
    """

    size: int
    rows: int
    rows_per_s: float


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Size of the next batch in rows.

    >>> size = BatchSize.first(ceiling=8_000_000, target_s=2.0)
    >>> [size.rows, size.after(1_000_000, 0.5).rows, size.after(1_000_000, 1.5).rows]
    [1000000, 2000000, 1000000]

    Attributes:
        floor: Fewest rows ever.
        ceiling: Most rows ever.
        target_s: Seconds that a full batch should take; with 0 the size is the ceiling and stays.
        rows: The size.
        trial: The last step, until it has paid.
        doubtful: Whether the last batch spoke against the size: the second in a row moves it, so that no
            single hiccup does.
        refused: A size that did not pay, or took too long.
        rest: Full batches until it may be tried again.
        next_rest: The same, if that size is refused once more.
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
        """Return the size before anything is known.

        Args:
            ceiling: Most rows of a batch.
            target_s: Seconds that a full batch should take; 0 fixes the size at the ceiling.
            shrinks: Whether the size may fall below the initial one, so that results come sooner.
        """
        rows = min(FIRST_ROWS, ceiling) if target_s else ceiling
        return cls(min(FLOOR_ROWS, rows) if shrinks else rows, ceiling, target_s, rows)

    def after(self, rows: int, seconds: float) -> BatchSize:
        """Return the size after a full batch.

        Args:
            rows: Rows of the batch; more waited that did not fit.
            seconds: From its admission to that of the next one.
        """
        if not self.target_s:
            return self
        now = replace(self, rest=max(self.rest - 1, 0))
        if now.trial is not None:
            if not now._paid(now.trial, rows, seconds):
                return now._undone(now.trial) if now.doubtful else replace(now, doubtful=True)
            now = now._kept(now.trial)
        # A single file of more rows than the size is not for the size to shorten.
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
    """A batch that was admitted: its number, its rows, whether it counts, and when, by the source's clock."""

    batch: int
    rows: int
    counts: bool
    since_s: float


class BatchSizing:
    """Follows the batches of one process and sizes the next.

    The source is asked for the next batch as soon as one is done, so the time between two such calls is that
    of a batch from admission to commit.

    Args:
        first: Size to begin with.
    """

    def __init__(self, first: BatchSize) -> None:
        self.fixed_rows = first.rows
        # Nothing is known of the width of rows, so the first size is what there is room for.
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
        """Return whether the next batch could be larger than the first, if there is room for it."""
        return self._size.rows > self.fixed_rows

    def has_room(self, rows: int) -> None:
        """Note how many rows memory has room for; a batch gets at least the first size anyway."""
        self._room = rows

    def admitted(self, batch: int, rows: int, *, full: bool, now_s: float) -> None:
        """Note that a batch begins.

        Args:
            batch: Its number.
            rows: Rows of it that the size applied to.
            full: Whether further rows wait that did not fit, and only rows take the batch's time.
            now_s: A clock that never goes back, seconds.
        """
        self._running = _Running(batch, rows, full and not self._cold, now_s)
        if rows and self._cold:
            self._cold -= 1

    def asked(self, batch: int, *, now_s: float) -> None:
        """Note that the source is asked for a batch, so that the one before it is done.

        Args:
            batch: Number of the batch to come.
            now_s: As for `admitted`.
        """
        done, self._running = self._running, None
        if done is not None and done.counts and done.batch + 1 == batch and now_s > done.since_s:
            self._size = self._size.after(done.rows, now_s - done.since_s)
