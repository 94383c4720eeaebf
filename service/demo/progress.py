"""How far the demo's replay is, read from the committed batches alone."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from catalog.store import Store

#: The input rate is taken over so many seconds of wall clock.
RATE_OVER_S = 10.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of the replay at one moment.

    Attributes:
        input_rows: Rows processed.
        late_rows: Rows dropped as late.
        batches: Micro-batches committed.
        rows_per_s: Input rate of the last seconds.
        state_rows: Rows held after the last batch.
        state_rows_mean: Mean of the rows held, over batches with input.
        state_rows_peak: Most rows held after a batch.
        pairs: Pairs of equal key that the chains compared.
        results: Results by query id.
        event_time_us: Newest event time, µs UTC; None before the first row.
    """

    input_rows: int
    late_rows: int
    batches: int
    rows_per_s: float
    state_rows: int
    state_rows_mean: float
    state_rows_peak: int
    pairs: int
    results: dict[int, int]
    event_time_us: int | None


class ProgressReader:
    """Follows the manifests of a catalog.

    Args:
        store: The catalog.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next_batch = 0
        self._pairs = 0
        self._state_rows: list[int] = []
        self._event_time_us: int | None = None
        self._recent: deque[tuple[float, int]] = deque()

    def read(self, now_s: float) -> Progress:
        """Return the progress at a moment.

        Args:
            now_s: Monotonic clock, seconds.
        """
        last = self._store.last_manifest()
        if last is not None:
            for manifest in self._store.manifests(self._next_batch, last.batch):
                self._pairs += sum(s.touched for s in manifest.slices)
                if any(s.rows for s in manifest.streams):
                    self._state_rows.append(manifest.state_rows)
                times = [s.max_event_time_us for s in manifest.streams if s.max_event_time_us is not None]
                self._event_time_us = (
                    max([*times, self._event_time_us or 0]) if times else self._event_time_us
                )
            self._next_batch = last.batch + 1
        totals = self._store.totals()
        return Progress(
            input_rows=totals.input_rows,
            late_rows=totals.late_rows,
            batches=totals.batches,
            rows_per_s=self._rate(now_s, totals.input_rows),
            state_rows=last.state_rows if last is not None else 0,
            state_rows_mean=sum(self._state_rows) / max(len(self._state_rows), 1),
            state_rows_peak=totals.state_rows_peak,
            pairs=self._pairs,
            results=self._store.query_totals(),
            event_time_us=self._event_time_us,
        )

    def _rate(self, now_s: float, rows: int) -> float:
        self._recent.append((now_s, rows))
        while len(self._recent) > 2 and self._recent[1][0] <= now_s - RATE_OVER_S:
            self._recent.popleft()
        first_s, first_rows = self._recent[0]
        return (rows - first_rows) / (now_s - first_s) if now_s > first_s else 0.0
