"""Watermarks of streams: only the rows and heartbeats of a stream move its watermark.

    wm_S = max(event time seen in S) - lateness,  or a heartbeat's time if that is later

A row is late if its event time is below its stream's watermark at the start of the batch. So the rows of a
batch do not affect which other rows of the batch are late.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from catalog.times.durations import MIN_TIME_US


@dataclass(frozen=True, slots=True)
class Watermark:
    """Event-time progress of one stream.

    Attributes:
        max_event_time_us: Newest event time seen, µs UTC, or None before the first row.
        heartbeat_us: Time of the latest heartbeat, µs UTC, or None before the first heartbeat.
        lateness_us: How far behind the newest event time a row may be without being late, µs.
    """

    lateness_us: int
    max_event_time_us: int | None = None
    heartbeat_us: int | None = None

    @property
    def value_us(self) -> int | None:
        """The watermark, µs UTC, or None before the first row or heartbeat."""
        candidates = [] if self.max_event_time_us is None else [self.max_event_time_us - self.lateness_us]
        if self.heartbeat_us is not None:
            candidates.append(self.heartbeat_us)
        # Neither a row nor a heartbeat can have a time before the year 1, so the watermark stops there, too.
        return max(MIN_TIME_US, *candidates) if candidates else None

    @property
    def idle(self) -> bool:
        """Return whether the latest heartbeat is at least as late as every row so far."""
        if self.heartbeat_us is None:
            return False
        return self.max_event_time_us is None or self.heartbeat_us >= self.max_event_time_us

    def after_rows(self, max_event_time_us: int | None) -> Watermark:
        """Return the watermark after rows with this newest event time; None means that there were no rows."""
        if max_event_time_us is None:
            return self
        newest = max_event_time_us
        if self.max_event_time_us is not None:
            newest = max(newest, self.max_event_time_us)
        return replace(self, max_event_time_us=newest)

    def after_heartbeat(self, watermark_us: int) -> Watermark:
        """Return the watermark after a heartbeat; a heartbeat never moves a watermark back."""
        latest = watermark_us if self.heartbeat_us is None else max(watermark_us, self.heartbeat_us)
        return replace(self, heartbeat_us=latest)

    def reset(self) -> Watermark:
        """Return the watermark as it was before the first row."""
        return Watermark(self.lateness_us)
