"""Progress of the demo's replay, computed from the committed batches only."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from catalog.store.repositories.batches import BatchRepository
from catalog.store.repositories.counts import CountRepository
from catalog.values.batch import BatchManifest
from service.demo.unshared import Need, UnsharedMeter

#: Seconds of wall clock over which the input rate is computed.
RATE_OVER_S = 10.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of the replay at one moment.

    Attributes:
        input_rows: Rows processed.
        punctuations: Rows processed that are only punctuations.
        late_rows: Rows dropped as late.
        batches: Micro-batches committed.
        rows_per_s: Input rate over the last ``RATE_OVER_S`` seconds.
        state_rows: Rows held after the last batch.
        state_rows_mean: Mean number of rows held, over batches with input.
        unshared_rows_mean: Mean number of rows that one join per query would hold.
        pairs: Pairs of equal key that the chains compared.
        unshared_pairs: Pairs of equal key that one join per query would compare.
        results: Results by query id.
        event_time_us: Newest event time, µs UTC, or None before the first row.
    """

    input_rows: int
    late_rows: int
    batches: int
    rows_per_s: float
    state_rows: int
    state_rows_mean: float
    unshared_rows_mean: Need
    pairs: int
    unshared_pairs: Need
    results: dict[int, int]
    event_time_us: int | None
    punctuations: int = 0

    @property
    def read_rows(self) -> int:
        """Number of rows that have been read from files."""
        return self.input_rows + self.punctuations


class ProgressReader:
    """Computes the progress from the manifests of a catalog.

    Args:
        batches: Committed batches.
        counts: Results per query.
        meter: Computes state and comparisons of the same queries without sharing.
    """

    def __init__(self, batches: BatchRepository, counts: CountRepository, meter: UnsharedMeter) -> None:
        self._batches, self._counts = batches, counts
        self._meter = meter
        self._next_batch = 0
        self._batches_with_input = 0
        self._state_rows = 0
        self._unshared_rows = Need()
        self._pairs = 0
        self._punctuations = 0
        self._event_time_us: int | None = None
        self._recent: deque[tuple[float, int]] = deque()

    def read(self, now_s: float) -> Progress:
        """Return the progress at a moment.

        Args:
            now_s: Monotonic clock, seconds.
        """
        last = self._batches.last_manifest()
        if last is not None:
            for manifest in self._batches.manifests(self._next_batch, last.batch):
                self._add(manifest)
            self._next_batch = last.batch + 1
        totals = self._batches.totals()
        count = max(self._batches_with_input, 1)
        unshared = self._unshared_rows
        return Progress(
            input_rows=totals.input_rows,
            late_rows=totals.late_rows,
            batches=totals.batches,
            rows_per_s=self._rate(now_s, totals.input_rows),
            state_rows=last.state_rows if last is not None else 0,
            state_rows_mean=self._state_rows / count,
            unshared_rows_mean=Need(unshared.filters_last / count, unshared.filters_first / count),
            pairs=self._pairs,
            unshared_pairs=Need() if self._event_time_us is None else self._meter.pairs(self._event_time_us),
            results=self._counts.totals(),
            event_time_us=self._event_time_us,
            punctuations=self._punctuations,
        )

    def _add(self, manifest: BatchManifest) -> None:
        self._pairs += sum(s.touched for s in manifest.slices)
        self._punctuations += sum(r.received for r in manifest.received)
        newest = {
            s.stream_id: s.max_event_time_us for s in manifest.streams if s.max_event_time_us is not None
        }
        if newest:
            self._event_time_us = max(newest.values())
        if any(s.rows for s in manifest.streams):
            watermarks = {s.stream_id: s.watermark_us for s in manifest.streams if s.watermark_us is not None}
            self._batches_with_input += 1
            self._state_rows += manifest.state_rows
            self._unshared_rows += self._meter.state_rows(newest, watermarks)

    def _rate(self, now_s: float, rows: int) -> float:
        self._recent.append((now_s, rows))
        while len(self._recent) > 2 and self._recent[1][0] <= now_s - RATE_OVER_S:
            self._recent.popleft()
        first_s, first_rows = self._recent[0]
        return (rows - first_rows) / (now_s - first_s) if now_s > first_s else 0.0
