"""Statistics of the running job, read from manifests, so that nothing runs ahead of results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from catalog.store import Store
from catalog.values.batch import BatchManifest, SliceCounters

#: Rates are taken over so many of the last batches.
RECENT_BATCHES = 20


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """A stream so far.

    Attributes:
        stream: Name.
        rows: Rows read, late and rejected ones included.
        late_rows: Rows below the watermark of their stream.
        rejected_rows: Rows without an event time.
        files_set_aside: Files that could not be read as the stream; named by ``set_aside``.
        set_aside: Path and reason of the newest of them.
        watermark_us: Watermark, µs UTC, or None.
        max_event_time_us: Newest event time, µs UTC, or None.
        rate_per_s: Rows per second of event time, over the last batches; None when they span no time.
    """

    stream: str
    rows: int
    late_rows: int
    rejected_rows: int
    files_set_aside: int
    set_aside: tuple[tuple[str, str], ...]
    watermark_us: int | None
    max_event_time_us: int | None
    rate_per_s: float | None


@dataclass(frozen=True, slots=True)
class QueryStatistics:
    """Results of a query so far."""

    query: str
    query_id: int
    results: int


@dataclass(frozen=True, slots=True)
class FamilyStatistics:
    """A family over the last batches.

    Attributes:
        family: Family id.
        probes: Males that probed a first slice.
        pairs_touched: Candidate pairs looked at.
        results: Pairs made.
        join_selectivity: Pairs made over (males times rows of the opposite chain); None without probes.
    """

    family: str
    probes: int
    pairs_touched: int
    results: int
    join_selectivity: float | None


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the job does.

    Attributes:
        plan_version: Version of the last batch.
        batches: Batches committed.
        input_rows: Rows read.
        late_rows: Rows dropped as late.
        input_rows_per_s: Rows per second of wall clock over the last batches.
        batch_seconds: Mean duration of the last batches, from callback to commit.
        state_rows: Rows held after the last batch.
        state_bytes: Encoded bytes held after the last batch.
        state_rows_peak: Most rows held after a batch.
        state_bytes_peak: Most encoded bytes held after a batch.
        streams: Per stream.
        slices: Counters of the last batch per family, side and slice.
        families: Per family.
        queries: Per query, removed ones included.
    """

    plan_version: int
    batches: int
    input_rows: int
    late_rows: int
    input_rows_per_s: float
    batch_seconds: float
    state_rows: int
    state_bytes: int
    state_rows_peak: int
    state_bytes_peak: int
    streams: tuple[StreamStatistics, ...]
    slices: tuple[SliceCounters, ...]
    families: tuple[FamilyStatistics, ...]
    queries: tuple[QueryStatistics, ...]


def read_statistics(store: Store) -> Statistics:
    """Read the statistics of a catalog's job."""
    last = store.last_manifest()
    recent: tuple[BatchManifest, ...] = ()
    if last is not None:
        recent = store.manifests(max(last.batch - RECENT_BATCHES + 1, 0), last.batch)
    totals = store.totals()
    results = store.query_totals()
    rows, seconds = _recent_rate(recent)
    return Statistics(
        plan_version=0 if last is None else last.plan_version,
        batches=totals.batches,
        input_rows=totals.input_rows,
        late_rows=totals.late_rows,
        input_rows_per_s=rows / seconds if seconds else 0.0,
        batch_seconds=_mean((m.committed_at_us - m.started_at_us) / 1e6 for m in recent),
        state_rows=0 if last is None else last.state_rows,
        state_bytes=0 if last is None else last.state_bytes,
        state_rows_peak=totals.state_rows_peak,
        state_bytes_peak=totals.state_bytes_peak,
        streams=tuple(_streams(store, recent)),
        slices=() if last is None else last.slices,
        families=tuple(_families(recent)),
        queries=tuple(
            QueryStatistics(r.query.name, r.query.id, results.get(r.query.id, 0)) for r in store.all_queries()
        ),
    )


def _streams(store: Store, recent: tuple[BatchManifest, ...]) -> Iterable[StreamStatistics]:
    counters = {c.stream_id: c for c in store.stream_totals()}
    for stream in store.streams():
        aside = store.inputs_set_aside(stream.id)
        found = counters.get(stream.id)
        yield StreamStatistics(
            stream=stream.name,
            rows=0 if found is None else found.rows,
            late_rows=0 if found is None else found.late_rows,
            rejected_rows=0 if found is None else found.rejected_rows,
            files_set_aside=len(aside),
            set_aside=tuple((file.path, file.reason or "") for file in aside[-10:]),
            watermark_us=None if found is None else found.watermark_us,
            max_event_time_us=None if found is None else found.max_event_time_us,
            rate_per_s=_event_rate(stream.id, recent),
        )


def _event_rate(stream_id: int, recent: tuple[BatchManifest, ...]) -> float | None:
    seen = [
        c for m in recent for c in m.streams if c.stream_id == stream_id and c.max_event_time_us is not None
    ]
    if len(seen) < 2:
        return None
    first, last = seen[0].max_event_time_us, seen[-1].max_event_time_us
    if first is None or last is None or last <= first:
        return None
    return sum(c.rows for c in seen[1:]) / ((last - first) / 1e6)


def _families(recent: tuple[BatchManifest, ...]) -> Iterable[FamilyStatistics]:
    slices = [s for m in recent for s in m.slices]
    for family in sorted({s.family for s in slices}):
        own = [s for s in slices if s.family == family]
        possible = sum(s.males * s.rows for s in own)
        made = sum(s.results for s in own)
        yield FamilyStatistics(
            family=family,
            probes=sum(s.males for s in own if s.slice == 1),
            pairs_touched=sum(s.touched for s in own),
            results=made,
            join_selectivity=made / possible if possible else None,
        )


def _recent_rate(recent: tuple[BatchManifest, ...]) -> tuple[int, float]:
    if len(recent) < 2:
        return 0, 0.0
    rows = sum(c.rows for m in recent[1:] for c in m.streams)
    return rows, (recent[-1].committed_at_us - recent[0].committed_at_us) / 1e6


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
