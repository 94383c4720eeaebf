"""Caps on the state: evict rows, or pause queries, once a stream exceeds its ``state_cap_mb``.

    manifest ── rows of A take 110 MB, the cap is 100 MB ──┬─ evict: control record "horizon of A is t"
                                                           └─ stop: its longest queries are paused

A horizon is an event time of a stream; all rows of the stream below it are evicted. Eviction frees the
excess and another tenth of the cap, so that not every batch causes a new horizon. A horizon is never above
its stream's watermark, so every row that arrives below the horizon is late anyway.

Each excess is handled only once: the next horizon is set only after the last one is in force in a batch, and
further queries are paused only after the plan without the paused queries is in force.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from catalog.steps import stream_sides
from catalog.store.store import Store
from catalog.values.batch import BatchManifest
from catalog.values.change import PauseQuery
from catalog.values.control import Horizon
from catalog.values.counters.batch_counters import HeldTimes
from catalog.values.stream import MEGABYTE, Stream
from service.planning.changes import changing
from service.planning.versions import Versions

log = logging.getLogger(__name__)

#: Fraction of the cap that is free after an eviction.
_FREE = 0.1


@dataclass(slots=True)
class StateCaps:
    """Enforces the caps of streams while a service runs; called from the watcher's loop.

    Attributes:
        store: Catalog.
        versions: Planner of the plan versions without the paused queries.
    """

    store: Store
    versions: Versions
    _judged: int = -1

    def run_once(self, _now_us: int) -> None:
        """Compare the state after the last batch with the caps, once per batch.

        Raises:
            SluiceError: The catalog cannot be used.
        """
        capped = [s for s in self.store.streams.all() if s.state_cap_mb is not None]
        manifest = self.store.batches.last_manifest() if capped else None
        if manifest is None or manifest.batch == self._judged:
            return
        for stream in capped:
            assert stream.state_cap_mb is not None, "only streams with a cap are checked"
            held = [each for each in manifest.held if each.stream_id == stream.id]
            excess = sum(each.bytes for each in held) - stream.state_cap_mb * MEGABYTE
            if excess > 0:
                self._act(stream, manifest, held, excess)
        self._judged = manifest.batch

    def _act(self, stream: Stream, manifest: BatchManifest, held: Sequence[HeldTimes], excess: int) -> None:
        assert stream.state_cap_mb is not None, "only streams with a cap are checked"
        cap = stream.state_cap_mb * MEGABYTE
        if stream.at_cap == "stop":
            self._stop(stream, manifest)
            return
        (counters,) = (c for c in manifest.streams if c.stream_id == stream.id)
        logged = self.store.control_log.horizon(stream.id)
        is_in_force = logged is None or counters.horizon_us == logged
        if counters.watermark_us is None or not is_in_force:
            return
        horizon_us = min(horizon_for(held, excess + cap * _FREE), counters.watermark_us)
        if logged is None or horizon_us > logged:
            self.store.control_log.append(horizon=Horizon(stream.id, horizon_us))
            facts = {"stream": stream.name, "horizon_us": horizon_us, "cap_mb": stream.state_cap_mb}
            log.warning("rows evicted at the cap of their stream", extra=facts)

    def _stop(self, stream: Stream, manifest: BatchManifest) -> None:
        """Pause the queries with the longest window on a stream."""
        plan = self.store.control_log.latest_plan()
        if plan is None or plan.version != manifest.plan_version:
            return
        windows = {
            record.query.name: max(side.window_us for side in sides)
            for record in self.store.queries.running()
            if (sides := [s for s in stream_sides(record.query) if s.stream_id == stream.id])
        }
        longest = max(windows.values(), default=0)
        names = sorted(name for name, window_us in windows.items() if window_us == longest)
        if names:
            reason = (
                f'rows of stream "{stream.name}" take more than its state_cap_mb of {stream.state_cap_mb}, '
                "and this query has the longest window on it"
            )
            with changing(self.versions, [PauseQuery(n, reason) for n in names], actor="engine") as changed:
                version = changed.version
            log.error("queries paused: %s", reason, extra={"queries": names, "plan_version": version})


def horizon_for(held: Iterable[HeldTimes], excess: float) -> int:
    """Return the lowest event time such that the rows below it take at least ``excess`` bytes.

    Args:
        held: Bytes and event times of one stream's rows, an item per bucket; not empty.
        excess: Bytes to free.

    >>> horizon_for([HeldTimes(1, 100, (0, 10, 20)), HeldTimes(1, 100, (10, 20, 30))], 60)
    21
    """
    # The quantiles ``times_us`` cut a bucket's rows into intervals with equally many rows. Rows at the end of
    # an interval are evicted, too, so that a horizon advances even if many rows have the same event time.
    ends = sorted(
        (cut + 1, each.bytes / (len(each.times_us) - 1)) for each in held for cut in each.times_us[1:]
    )
    gone = 0.0
    for end, size in ends:
        gone += size
        if gone >= excess:
            return end
    return ends[-1][0]
