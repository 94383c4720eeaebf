"""Statistics, from the last batches, of joins that hold rows in rings or in stream order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from catalog.values.batch import BatchManifest
from catalog.values.counters.add_up import add_up
from catalog.values.counters.family_counters import ProbeCounters
from catalog.values.policies.memory import Memory
from catalog.values.statistics import FamilyProfile
from planner.families.families import SIDES, family_clocks, family_streams
from planner.orders.buffers import OrderedStream, latency_s, memory_rows


@dataclass(frozen=True, slots=True)
class RingStatistics:
    """Rings of one side of a family over the last batches.

    Attributes:
        side: `a` or `b`: the side whose rows the rings hold.
        probes: Rows of the other side that probed the rings.
        scanned: Rows in the rings that probing rows were compared with.
        heads_looked_at: Ring heads that were examined and had not yet expired.
        removed: Expired rows that were removed.
        live: Rows held after the last batch that have not expired.
        expired_held: Rows held after the last batch although they have expired.
    """

    side: str
    probes: int
    scanned: int
    heads_looked_at: int
    removed: int
    live: int
    expired_held: int


@dataclass(frozen=True, slots=True)
class OrderStatistics:
    """Order of the stream on one side of a family of joins without windows, and its cost.

    Attributes:
        side: `a` or `b`.
        stream: Name of the side's stream.
        scramble: Scrambling factor after the last batch, declared or monitored.
        lag: Number of rows by which the stream is ahead of the other stream; negative if it is behind,
            None while unknown.
        predicted_rows: Rows that the side is expected to hold in memory, given the scrambling factors, the
            lag and the rates of the last batches, or None while the lag is unknown or the other stream stands
            still.
        held_rows: Rows held in slices after the last batch.
        disordered_share: Fraction of the stream's rows in the last batches that violated the stream's order,
            or None if the stream had no rows.
        memory: Strategy that decides where rows of the side wait.
        predicted_latency_s: Expected wait, in seconds, of a row for rows that may precede it in the order,
            given the scrambling factor and the rows of the last batches. 0 if rows are joined as they arrive,
            or None while no rows arrive.
        latency_s: Measured mean wait, in seconds, of the rows joined in the last batches: the sum of the rows
            that wait at the end of each batch, divided by the rows joined, times the mean length of a batch.
            0 if rows are joined as they arrive, or None while no rows are joined.
        waiting_rows: Rows in memory after the last batch that wait outside the slices.
        parked_rows: Rows after the last batch that wait on disk because their stream is ahead of the other
            stream.
        parked_segments: Closed segments that contain the parked rows.
        opened_segments: Closed segments with parked rows that were opened in the last batches.
    """

    side: str
    stream: str
    scramble: int
    lag: float | None
    predicted_rows: float | None
    held_rows: int
    disordered_share: float | None
    memory: str
    predicted_latency_s: float | None
    latency_s: float | None
    waiting_rows: int
    parked_rows: int
    parked_segments: int
    opened_segments: int


def order_statistics(
    recent: Sequence[BatchManifest], family: str, profile: FamilyProfile | None, names: Mapping[int, str]
) -> Iterator[OrderStatistics]:
    """Yield the order of each side of a family without windows, and its cost; yield nothing for others.

    Args:
        recent: The last batches, in order; at least one.
        family: Family id.
        profile: Measured profile of the family.
        names: Names of streams by id.
    """
    if "order" not in family_clocks(family):
        return
    last = recent[-1]
    seconds = (last.committed_at_us - recent[0].started_at_us) / 1e6
    scrambles = {c.stream_id: c.scramble for c in last.streams}
    rows = Counter[int]()
    for counters in (c for m in recent for c in m.streams):
        rows[counters.stream_id] += counters.rows
    disordered = Counter[str]()
    for broken in (c for m in recent for c in m.punctuations if c.family == family):
        disordered[broken.side] += broken.violating
    memory = {c.side: c for c in last.memory if c.family == family}
    opened, waited, joined = Counter[str](), Counter[str](), Counter[str]()
    for counted in (c for m in recent for c in m.memory if c.family == family):
        opened[counted.side] += counted.opened
        waited[counted.side] += counted.sorting
        joined[counted.side] += counted.joined
    ids = dict(zip(SIDES, family_streams(family), strict=True))
    lags = dict.fromkeys(SIDES) if profile is None else {"a": profile.lag_a, "b": profile.lag_b}
    for side, other in ((SIDES[0], SIDES[1]), (SIDES[1], SIDES[0])):
        scramble, opposite, lag = scrambles.get(ids[side]), scrambles.get(ids[other]), lags[side]
        if scramble is None:
            continue  # Rows that are pairs of an earlier step have no scrambling factor.
        way = Memory(memory[side].strategy if side in memory else "plain")
        late_s = latency_s(way, OrderedStream(scramble, rows[ids[side]] / seconds if seconds > 0 else 0.0))
        predicted = None
        if opposite is not None and lag is not None:
            streams = OrderedStream(scramble, rows[ids[side]]), OrderedStream(opposite, rows[ids[other]])
            predicted = memory_rows(way, *streams, lag.value)
        yield OrderStatistics(
            side=side,
            stream=names.get(ids[side], ""),
            scramble=scramble,
            lag=None if lag is None else lag.value,
            predicted_rows=predicted if predicted is not None and isfinite(predicted) else None,
            held_rows=sum(s.rows for s in last.slices if (s.family, s.side) == (family, side)),
            disordered_share=disordered[side] / rows[ids[side]] if rows[ids[side]] else None,
            memory=way.strategy,
            predicted_latency_s=late_s if isfinite(late_s) else None,
            latency_s=_waited_s(way, waited[side], joined[side], seconds / len(recent)),
            waiting_rows=memory[side].waiting if side in memory else 0,
            parked_rows=memory[side].parked if side in memory else 0,
            parked_segments=memory[side].parked_segments if side in memory else 0,
            opened_segments=opened[side],
        )


def _waited_s(memory: Memory, waited: int, joined: int, batch_s: float) -> float | None:
    """Return the mean seconds that rows have waited, or None if no rows were joined.

    Args:
        memory: Where rows wait.
        waited: Rows that waited at the end of each batch, added up: a row counts once for each batch.
        joined: Rows that were joined.
        batch_s: Mean length of a batch, seconds.
    """
    if not memory.sorts:
        return 0.0
    return waited / joined * batch_s if joined else None


def ring_statistics(recent: Sequence[BatchManifest], family: str) -> Iterator[RingStatistics]:
    """Yield the work of each side of a family whose rows are held in rings.

    Args:
        recent: The last batches, in order.
        family: Family id.
    """
    counted = [[c for c in m.probes if c.family == family] for m in recent]
    last = {c.side: c for c in (counted[-1] if counted else ())}
    for total in add_up((c for batch in counted for c in batch), ProbeCounters.KEY):
        now = last.get(total.side)
        yield RingStatistics(
            total.side,
            total.probes,
            total.scanned,
            total.looked,
            total.removed,
            0 if now is None else now.live,
            0 if now is None else now.expired,
        )
