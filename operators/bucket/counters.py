"""Counters of a bucket for the manifest of a batch.

Work is counted where it is done: slices count their own work (``slices.sliced_join``), and PACK counts the
rows of each filter while it evaluates the filter. Keys are counted in rows that are sorted by key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from operator import attrgetter

import numpy as np

from catalog.values.counters.batch_counters import HeldTimes
from catalog.values.counters.family_counters import (
    AbsenceCounters,
    GroupCounters,
    KeyCounters,
    MemoryCounters,
    ProbeCounters,
    PunctuationCounters,
    UnmatchedCounters,
)
from catalog.values.counters.slice_table import NUMBERS, SliceChain, SliceTable
from catalog.values.plan import FamilyPlan
from catalog.values.stream import Stream
from operators.join.family_joins import FamilyJoins
from operators.kernels.keys import Bools, Int64s
from operators.lazy.lazy_segment import LazySegment, SegmentFacts
from operators.segments.layout import SIDES
from operators.segments.segment import Segment
from operators.slices.sliced_join import SliceCounts, SliceState

#: Number of intervals into which the event times of a stream with a state cap are divided. With more
#: intervals, fewer rows are evicted earlier than the cap requires.
_PARTS = 64
#: Approximate maximum number of rows per stream and bucket whose event times are sampled for a state cap.
_SAMPLE = 8192

_WORK_NAMES = tuple(field.name for field in fields(SliceCounts))
_WORK = attrgetter(*_WORK_NAMES)
_HELD_NAMES = ("bytes", "segments", "own_bytes", "lying", "lazy_segments", "read_segments", "read_rows")

#: Returns the progress of each side of a family on its clock.
Clocks = Callable[[FamilyPlan], Mapping[str, int | None]]


def slice_table(families: Mapping[str, FamilyJoins], clocks: Clocks) -> SliceTable:
    """Count the rows that each slice of a bucket holds, and its work in the last batch.

    Args:
        families: Joins per family id, as a bucket has them.
        clocks: Returns the progress of each side of a family at the end of the batch.
    """
    rows_of = _rows_of_values(families)
    chains: list[SliceChain] = []
    counts: list[Int64s] = []
    for family_id, joins in families.items():
        opposite = joins.opposite_reached(clocks(joins.family.plan))
        dead = {
            side: iter(joins.closed[other].dead_per_slice)
            for side, other in (("a", "b"), ("b", "a"))
            if other in joins.closed
        }
        for join_id, chain in joins.chains.items():
            for side in SIDES:
                slices = chain.slices[side]
                columns: dict[str, Sequence[int] | Int64s] = _held(slices, rows_of)
                columns["lazy_end"] = chain.join.lazy_ends[side]
                columns["rows"] = chain.rows_per_slice(side, opposite[side])
                columns["dead"] = [next(dead[side], 0) for _ in slices] if side in dead else [0] * len(slices)
                worked = np.array([_WORK(state.counts) for state in slices], dtype=np.int64)
                columns.update(zip(_WORK_NAMES, worked.T, strict=True))
                chains.append((family_id, join_id, side, len(slices)))
                counts.append(np.array([columns[name] for name in NUMBERS], dtype="<i8").T)
    return SliceTable(tuple(chains), b"".join(table.tobytes() for table in counts))


def _held(slices: Sequence[SliceState], rows_of: Mapping[str, int]) -> dict[str, Sequence[int] | Int64s]:
    """Count the rows, segments and bytes that each slice holds: int64[slices] per counter."""
    # Empty slices are skipped: of a thousand slices, most are empty.
    held = {name: np.zeros(len(slices), dtype=np.int64) for name in _HELD_NAMES}
    for number, state in enumerate(slices):
        if not state.segments:
            continue
        read = [s.rows_read for s in state.segments if isinstance(s, LazySegment) and s.rows_read]
        held["bytes"][number] = _bytes(state.segments, rows_of)
        held["segments"][number] = len(state.segments)
        held["own_bytes"][number] = sum(segment.stored_bytes for segment in state.segments)
        held["lying"][number] = state.rows
        held["lazy_segments"][number] = sum(segment.bloom is not None for segment in state.segments)
        held["read_segments"][number] = len(read)
        held["read_rows"][number] = sum(read)
    return dict(held)


def absence_counters(families: Mapping[str, FamilyJoins], clocks: Clocks) -> Iterator[AbsenceCounters]:
    """Yield two counts: rows for which the last batch found that they have no match, and undecided rows.

    In a family with windows of rows, a row is undecided while it waits for its rank.

    Args:
        families: Joins per family id, as a bucket has them.
        clocks: Returns the progress of each side of a family at the end of the batch.
    """
    for family_id, joins in families.items():
        absence, reached = joins.absence, clocks(joins.family.plan)
        if joins.ranked is not None:
            for side, waiting in joins.ranked.waiting.items():
                yield AbsenceCounters(family_id, side, waiting.rows, 0)
        for side, opposite in (("a", reached["b"]), ("b", reached["a"])):
            if absence is not None and absence.compiled.groups[side]:
                held = (s for _, of, _, state in joins.slices() if of == side for s in state.segments)
                undecided = absence.undecided(side, held, opposite)
                marks = sum(len(segment) for segment in absence.marks[side].segments)
                yield AbsenceCounters(
                    family_id, side, undecided, absence.given[side], absence.found[side], marks
                )


def unmatched_counters(families: Mapping[str, FamilyJoins]) -> Iterator[UnmatchedCounters]:
    """Yield, for each outer join, the number of unmatched rows that the last batch added to its results.

    Args:
        families: Joins per family id, as a bucket has them.
    """
    for joins in families.values():
        if joins.absence is not None:
            for query_id, rows in joins.absence.unmatched.items():
                if rows:
                    yield UnmatchedCounters(query_id, rows)


def punctuation_counters(families: Mapping[str, FamilyJoins]) -> Iterator[PunctuationCounters]:
    """Yield a bucket's counters of punctuations: closed keys, their rows, and rows that break a promise.

    Args:
        families: Joins per family id, as a bucket has them.
    """
    for family_id, joins in families.items():
        for side, closed in joins.closed.items():
            yield PunctuationCounters(
                family_id,
                side,
                closed=closed.arrived,
                remembered=closed.remembered,
                violating=closed.violating,
                discarded=closed.discarded,
                purged=closed.purged,
                dead=closed.dead,
                live=closed.live,
                died=closed.died,
            )
        for side, rows in joins.disordered.items():
            yield PunctuationCounters(family_id, side, violating=rows)


def group_counters(families: Mapping[str, FamilyJoins]) -> Iterator[GroupCounters]:
    """Yield counters of a bucket's groups: open groups, and groups emitted in the last batch.

    Args:
        families: Joins per family id, as a bucket has them.
    """
    for family_id, joins in families.items():
        if joins.groups is not None:
            yield GroupCounters(family_id, joins.groups.open(), joins.groups.given)


def probe_counters(families: Mapping[str, FamilyJoins], clocks: Clocks) -> Iterator[ProbeCounters]:
    """Yield counters of a bucket's rings: their work in the last batch, and the rows that they hold.

    Args:
        families: Joins per family id, as a bucket has them.
        clocks: Returns the progress of each side of a family at the end of the batch.
    """
    for family_id, joins in families.items():
        if not joins.family.plan.probe.has_rings:
            continue
        reached = clocks(joins.family.plan)
        for chain in joins.chains.values():
            for side, rings in {} if chain.rings is None else chain.rings.items():
                last, counts = chain.slices[side][-1], rings.counts
                live, expired = rings.held(last.segments, reached["b" if side == "a" else "a"])
                live += sum(state.rows for state in chain.slices[side][:-1])
                yield ProbeCounters(family_id, side, **asdict(counts), live=live, expired=expired)


def held_times(families: Mapping[str, FamilyJoins], streams: Iterable[Stream]) -> Iterator[HeldTimes]:
    """Yield the event times of the rows that a bucket holds, for each stream with a state cap.

    Args:
        families: Joins per family id, as a bucket has them.
        streams: Streams of the plan.
    """
    for stream in streams:
        if stream.state_cap_mb is None:
            continue
        held = [
            segment
            for joins in families.values()
            for _, side, _, state in joins.slices()
            if stream.id == (joins.family.plan.stream_a if side == "a" else joins.family.plan.stream_b)
            for segment in state.segments
        ]
        rows = sum(len(segment) for segment in held)
        if not rows:
            continue
        # Segments are sorted by key and not by time, so every nth row gives a fair sample of the event times.
        step = rows // _SAMPLE + 1
        times = np.concatenate([_times(segment, step) for segment in held])
        cuts = np.quantile(times, np.linspace(0, 1, _PARTS + 1), method="lower")
        yield HeldTimes(
            stream.id, sum(segment.stored_bytes for segment in held), tuple(int(each) for each in cuts)
        )


def _times(segment: Segment, step: int) -> Int64s:
    """Return the event times of every nth row of a segment; estimate them if it is lazy."""
    if segment.bloom is None:
        return segment.times[::step]
    cuts = SegmentFacts.of(segment).cuts
    places = np.linspace(0, len(cuts) - 1, -(-len(segment) // step))
    times: Int64s = np.interp(places, np.arange(len(cuts)), cuts).astype(np.int64)
    return times


def memory_counters(families: Mapping[str, FamilyJoins]) -> Iterator[MemoryCounters]:
    """Yield counters of the rows of a bucket that wait outside the slices of their family.

    Args:
        families: Joins per family id, as a bucket has them.
    """
    for family_id, joins in families.items():
        strategy = joins.family.plan.memory.strategy
        if strategy == "plain":
            continue
        for side, sorting in joins.sorting.items():
            rows = sorting.rows
            counted = MemoryCounters(
                family_id, side, strategy, waiting=rows, sorting=rows, joined=sorting.taken
            )
            if (parked := joins.parked.get(side)) is not None:
                counted = replace(
                    counted,
                    waiting=rows + parked.rows - parked.closed_rows,
                    parked=parked.closed_rows,
                    parked_segments=len(parked.closed),
                    **asdict(parked.counts),
                )
            yield counted


def _rows_of_values(families: Mapping[str, FamilyJoins]) -> Mapping[str, int]:
    """Count, per stored value, the rows of all segments that use it, in all families."""
    rows: dict[str, int] = {}
    for joins in families.values():
        for segment in joins.segments():
            for stored, _ in segment.values:
                rows[stored] = rows.get(stored, 0) + len(segment)
    return rows


def _bytes(segments: Iterable[Segment], rows_of: Mapping[str, int]) -> int:
    """Return the bytes of segments; a stored value's bytes are divided among all its segments."""
    shares = (
        length * len(segment) / max(rows_of[stored], 1)
        for segment in segments
        for stored, length in segment.values
    )
    return round(sum(shares))


def key_counters(family_id: str, side: str, key: Int64s, home: Bools | None) -> KeyCounters:
    """Count the keys of new rows of one side of a family in one bucket.

    Args:
        family_id: The family.
        side: ``a`` or ``b``.
        key: int64[n], ascending, keys of the new rows.
        home: bool[n], rows whose key is counted in this bucket, or None for all rows. Each key is counted in
            only one bucket.
    """
    counted = key if home is None else key[home]
    ends = np.append(np.flatnonzero(counted[1:] != counted[:-1]) + 1, len(counted))
    runs = np.diff(ends, prepend=0)
    return KeyCounters(
        family=family_id,
        side=side,
        rows=len(counted),
        keys=int(np.count_nonzero(runs)),
        largest=int(runs.max()),
        squares=int(np.dot(runs, runs)),
        copies=len(key),
    )
