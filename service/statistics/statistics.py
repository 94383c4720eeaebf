"""Statistics of the running job, read from committed batches, so they never run ahead of visible results.

Totals and peaks cover all batches (``store.batches``, ``store.counts``); recent numbers come from the
manifests of the last batches. The numbers by which plans are chosen (rates, selectivities, widths, keys) are
the measured profile, smoothed over the last batches (``statistics.profile``). Each of these numbers has an
age: the wall-clock time since the newest batch that contributed to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from catalog.steps import is_exchanged
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from catalog.values.batch import BatchManifest
from catalog.values.counters.add_up import add_up
from catalog.values.counters.batch_counters import StreamPunctuations
from catalog.values.counters.family_counters import PunctuationCounters, SliceCounters, UnmatchedCounters
from catalog.values.source_file import SourceFile
from catalog.values.statistics import FamilyProfile, Measure, Profile, StreamProfile
from catalog.values.stream import MEGABYTE, FilesSource, Stream
from planner.families.families import family_streams
from service.inputs.sources.listed.files import source_warnings
from service.statistics.order_statistics import (
    OrderStatistics,
    RingStatistics,
    order_statistics,
    ring_statistics,
)
from service.statistics.profile import profile_from, recent_manifests

#: Number of latest batches over which speeds and the counts of families are computed.
RECENT_BATCHES = 20


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """Totals and recent measurements of a stream.

    Attributes:
        stream: Name.
        rows: Rows read, late and rejected ones included.
        late_rows: Rows below the watermark of their stream.
        rejected_rows: Rows without an event time.
        files_set_aside: Files that could not be read as rows of the stream; `set_aside` has the newest.
        set_aside: Path and reason of the newest files that were set aside.
        skipped_rows: Bad rows skipped in files that were not set aside, with ``on_error: skip-rows``.
        warnings: Reasons why no file of the stream has been listed; empty if a file was listed, or if the
            stream does not read files.
        watermark_us: Watermark, µs UTC, or None while the stream has no watermark.
        max_event_time_us: Newest event time, µs UTC, or None while unknown.
        rate_per_s: Rows per second of event time, without late rows, smoothed, or None if the last batches
            span no event time.
        rate_age_s: Age of ``rate_per_s``, seconds, or None without a rate.
        row_bytes: Encoded bytes per row held, smoothed, or None while unknown.
        row_bytes_age_s: Age of ``row_bytes``, seconds, or None if ``row_bytes`` is None.
        scramble: Scrambling factor, declared or last monitored: the maximum number of rows by which a row
            arrives behind a row that follows it in the order, or None while unknown or without an order.
        state_bytes: Bytes of the stream's rows in the state after the last batch, over all families.
        state_cap_bytes: Maximum bytes that the stream's rows may take in the state, or None without a cap.
        state_growth_per_s: Bytes by which the stream's state has grown per second of wall clock over the last
            batches, or None without two batches.
        horizon_us: Event time below which rows were removed because of the cap, µs UTC, or None while
            unknown.
    """

    stream: str
    rows: int
    late_rows: int
    rejected_rows: int
    files_set_aside: int
    set_aside: tuple[tuple[str, str], ...]
    skipped_rows: int
    warnings: tuple[str, ...]
    watermark_us: int | None
    max_event_time_us: int | None
    rate_per_s: float | None
    rate_age_s: float | None
    row_bytes: float | None
    row_bytes_age_s: float | None
    scramble: int | None
    state_bytes: int
    state_cap_bytes: int | None
    state_growth_per_s: float | None
    horizon_us: int | None


@dataclass(frozen=True, slots=True)
class FilterStatistics:
    """A distinct filter of a stream, shared by any number of queries.

    Attributes:
        stream: Name of the stream.
        filter: Canonical predicate.
        selectivity: Fraction of rows that pass, smoothed.
        age_s: Its age, seconds.
    """

    stream: str
    filter: str
    selectivity: float
    age_s: float


@dataclass(frozen=True, slots=True)
class QueryStatistics:
    """Results of a query.

    Attributes:
        query: Query name.
        query_id: Immutable query id.
        results: Results so far.
        absent: Results of an outer join in the last batches that are rows without a partner, or None if the
            query has no such results.
    """

    query: str
    query_id: int
    results: int
    absent: int | None


@dataclass(frozen=True, slots=True)
class FamilyStatistics:
    """A family over the last batches.

    Attributes:
        family: Family id.
        probes: Males that probed a first slice.
        pairs_touched: Pairs of a male and a stored row with equal keys, whatever their distance in time; in
            joins without a key, pairs that satisfy the leading condition.
        pairs_compared: Pairs that nested loops would have compared.
        results: Pairs made.
        join_selectivity: Smoothed fraction of row pairs that have equal keys (in joins without a key: that
            satisfy the leading condition), or None while unknown.
        join_selectivity_age_s: Age of ``join_selectivity``, seconds, or None if ``join_selectivity`` is
            None.
        keys_a: Distinct keys of a's rows in a batch, smoothed, or None while unknown.
        keys_b: As `keys_a`, for the rows of b.
        skew_a: Self-join size of a's rows in a batch, divided by the size if all keys had equal shares (1
            means no skew), smoothed, or None if `keys_a` is None.
        skew_b: As `skew_a`, for the rows of b.
        keys_age_s: Age of the oldest of these keys and skews, seconds, or None if all are None.
        undecided_a: Rows of a held after the last batch for which some query may not have decided yet whether
            they have a partner. The decision is judged by time alone, so a row that has found its partner
            counts as long as it is held. With windows of rows: rows of a that wait for their ranks. None
            if no query decides whether rows of a have partners and no query has windows of rows.
        undecided_b: As `undecided_a`, for the rows of b.
        absent_a: Results of the last batches that are rows of a without a partner, all queries together. None
            if no query decides whether rows of a have partners and no query has windows of rows.
        absent_b: As `absent_a`, for the rows of b.
        matched_a: Rows of a that got their first match in the last batches, counted once per distinct set of
            query conditions, or None if `absent_a` is None.
        matched_b: As `matched_a`, for the rows of b.
        marks_a: Marks held after the last batch (a mark is a row's distance to its nearest matches), or None
            if `undecided_a` is None.
        marks_b: As `marks_a`, for the rows of b.
        left_a: Rows of a that were removed in the last batches although windows still reached them, because
            no query needed them any more. None if `matched_a` is None.
        left_b: As `left_a`, for the rows of b.
        open_groups: Groups after the last batch that may still get pairs, or None if results are pairs.
        closed_groups: Groups that became results in the last batches, over all queries, or None if results
            are pairs.
        exchange_rows: Pairs of the previous step that were sent to other buckets in the last batches. None if
            neither side of the family reads such pairs.
        exchange_seconds: Mean seconds from the commit of the batch that sends pairs of the previous step to
            the commit of the batch that joins them, or None if the last batches include no such two batches.
        again_rows: Pairs of the previous step that were made again in the last batches, or None if
            no pairs were made again.
        again_partials: Pairs with equal keys that were examined to make the pairs in `again_rows`, or None if
            no pairs were examined.
        rings: Work and contents of a family's rings, per side; empty for families without rings.
        ordered: Order of the sides of a family without windows, and its cost; empty for other families.
    """

    family: str
    probes: int
    pairs_touched: int
    pairs_compared: int
    results: int
    join_selectivity: float | None
    join_selectivity_age_s: float | None
    keys_a: float | None
    keys_b: float | None
    skew_a: float | None
    skew_b: float | None
    keys_age_s: float | None
    undecided_a: int | None
    undecided_b: int | None
    absent_a: int | None
    absent_b: int | None
    matched_a: int | None
    matched_b: int | None
    marks_a: int | None
    marks_b: int | None
    left_a: int | None
    left_b: int | None
    open_groups: int | None
    closed_groups: int | None
    exchange_rows: int | None
    exchange_seconds: float | None
    again_rows: int | None = None
    again_partials: int | None = None
    rings: tuple[RingStatistics, ...] = ()
    ordered: tuple[OrderStatistics, ...] = ()


@dataclass(frozen=True, slots=True)
class PunctuationStatistics:
    """Effects on a family of the contract or order of one side's stream, over the last batches.

    Attributes:
        family: Family id.
        side: `a` or `b`, the side whose stream has the contract or order.
        stream: Name of that stream.
        closed: Keys that were closed, by punctuations or by rows of a unique stream.
        remembered: Closings remembered after the last batch; a key may count more than once.
        violating: Rows of the side that did not enter the family because they violated a promise or the
            stream's order.
        discarded: Rows of the other side that were not stored because their key was closed.
        purged: Rows of the other side that were removed from the state because their key was closed.
        dead: Rows of the other side with closed keys that the last purge left in the state.
    """

    family: str
    side: str
    stream: str
    closed: int
    remembered: int
    violating: int
    discarded: int
    purged: int
    dead: int


@dataclass(frozen=True, slots=True)
class ReceivedPunctuations:
    """Punctuations of a stream over the last batches.

    Attributes:
        stream: Name of the stream.
        received: Number of punctuations.
        ignored: Number of punctuations that no family uses, because no query joins on exactly their columns.
    """

    stream: str
    received: int
    ignored: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of the job.

    Attributes:
        plan_version: Version of the last batch.
        batches: Batches committed.
        input_rows: Rows read.
        late_rows: Rows dropped as late.
        input_rows_per_s: Rows per second of wall clock over the last batches.
        batch_seconds: Mean duration of the last batches, from start to commit.
        batch_event_seconds: Event time that a batch covers, smoothed. None if the last batches span no time.
        pack_cpu_seconds: Mean CPU time of the last batches for reading and packing, all tasks together.
        chain_cpu_seconds: Mean CPU time of the last batches for joining, storing state and writing results.
        hottest_bucket_work: Rows and pairs of each batch's hottest bucket, divided by the mean of all
            buckets, over the last batches; 1 means evenly loaded buckets, None without rows.
        hottest_bucket_cpu: As `hottest_bucket_work`, for CPU time; close to 1 in small batches, where fixed
            costs per bucket dominate.
        state_rows: Rows held after the last batch.
        state_bytes: Encoded bytes held after the last batch.
        state_rows_peak: Maximum number of rows held after any batch.
        state_bytes_peak: Maximum encoded bytes held after any batch.
        streams: Per stream.
        slices: Counters of the last batch per family, join, side and slice.
        filters: Statistics per distinct filter evaluated in the last batches.
        families: Statistics per family that ran in the last batches.
        queries: Per query, removed ones included.
        punctuations: Statistics per family side whose stream has a contract.
        received_punctuations: Statistics per stream that received punctuations in the last batches.
    """

    plan_version: int
    batches: int
    input_rows: int
    late_rows: int
    input_rows_per_s: float
    batch_seconds: float
    batch_event_seconds: float | None
    pack_cpu_seconds: float
    chain_cpu_seconds: float
    hottest_bucket_work: float | None
    hottest_bucket_cpu: float | None
    state_rows: int
    state_bytes: int
    state_rows_peak: int
    state_bytes_peak: int
    streams: tuple[StreamStatistics, ...]
    slices: tuple[SliceCounters, ...]
    filters: tuple[FilterStatistics, ...]
    families: tuple[FamilyStatistics, ...]
    queries: tuple[QueryStatistics, ...]
    punctuations: tuple[PunctuationStatistics, ...]
    received_punctuations: tuple[ReceivedPunctuations, ...]

    def about(self, readable: Callable[[str], bool]) -> Statistics:
        """Return the totals and the statistics of readable streams and queries, without those of families."""
        return replace(
            self,
            streams=tuple(each for each in self.streams if readable(each.stream)),
            filters=tuple(each for each in self.filters if readable(each.stream)),
            queries=tuple(each for each in self.queries if readable(each.query)),
            received_punctuations=tuple(e for e in self.received_punctuations if readable(e.stream)),
            slices=(),
            families=(),
            punctuations=(),
        )


def read_statistics(store: Store, *, clock_us: Callable[[], int] = wall_clock_us) -> Statistics:
    """Read the statistics of a catalog's job.

    Args:
        store: The catalog.
        clock_us: Wall clock from which ages are computed, µs UTC.
    """
    now_us = clock_us()
    manifests = recent_manifests(store)
    profile = profile_from(store, manifests, now_us=now_us)
    last = manifests[-1] if manifests else None
    recent = manifests[-RECENT_BATCHES:]
    totals = store.batches.totals()
    results = store.counts.totals()
    unmatched = add_up((c for m in recent for c in m.unmatched), UnmatchedCounters.KEY)
    absent = {counters.query_id: counters.rows for counters in unmatched}
    rows, seconds = _recent_rate(recent)
    names = {stream.id: stream.name for stream in store.streams.all()}
    return Statistics(
        plan_version=0 if last is None else last.plan_version,
        batches=totals.batches,
        input_rows=totals.input_rows,
        late_rows=totals.late_rows,
        input_rows_per_s=rows / seconds if seconds else 0.0,
        batch_seconds=_mean((m.committed_at_us - m.started_at_us) / 1e6 for m in recent),
        batch_event_seconds=profile.batch_s.value if profile.batch_s.origin == "measured" else None,
        pack_cpu_seconds=_mean(m.cpu.pack_us / 1e6 for m in recent),
        chain_cpu_seconds=_mean(m.cpu.chain_us / 1e6 for m in recent),
        hottest_bucket_work=_imbalance((m.buckets.hottest_work, m.buckets.work, m) for m in recent),
        hottest_bucket_cpu=_imbalance((m.buckets.hottest_us, m.cpu.chain_us, m) for m in recent),
        state_rows=0 if last is None else last.state_rows,
        state_bytes=0 if last is None else last.state_bytes,
        state_rows_peak=totals.state_rows_peak,
        state_bytes_peak=totals.state_bytes_peak,
        streams=tuple(_streams(store, recent, {s.stream_id: s for s in profile.streams}, now_us)),
        slices=() if last is None else last.slices,
        filters=tuple(_filters(profile, names, now_us)),
        families=tuple(_families(recent, {f.family: f for f in profile.families}, names, now_us)),
        queries=tuple(
            QueryStatistics(name, query_id, results.get(query_id, 0), absent.get(query_id))
            for query_id, name in store.queries.names().items()
        ),
        punctuations=tuple(_punctuations(recent, names)),
        received_punctuations=tuple(
            ReceivedPunctuations(names[found.stream_id], found.received, found.ignored)
            for found in add_up((r for m in recent for r in m.received), StreamPunctuations.KEY)
            if found.stream_id in names
        ),
    )


def _punctuations(
    recent: Sequence[BatchManifest], names: Mapping[int, str]
) -> Iterable[PunctuationStatistics]:
    last = {(c.family, c.side): c for m in recent[-1:] for c in m.punctuations}
    for total in add_up((c for m in recent for c in m.punctuations), PunctuationCounters.KEY):
        now = last.get((total.family, total.side))
        stream_id = family_streams(total.family)[total.side == "b"]
        yield PunctuationStatistics(
            total.family,
            total.side,
            names.get(stream_id, ""),
            total.closed,
            0 if now is None else now.remembered,
            total.violating,
            total.discarded,
            total.purged,
            0 if now is None else now.dead,
        )


def _streams(
    store: Store, recent: Sequence[BatchManifest], profiles: Mapping[int, StreamProfile], now_us: int
) -> Iterable[StreamStatistics]:
    horizons = {counters.stream_id: counters.horizon_us for m in recent[-1:] for counters in m.streams}
    held = [(m.committed_at_us, stream_bytes(m)) for m in (*recent[:1], *recent[-1:])]
    span_s = (held[-1][0] - held[0][0]) / 1e6 if held else 0.0
    scrambles = {counters.stream_id: counters.scramble for m in recent[-1:] for counters in m.streams}
    counters = {c.stream_id: c for c in store.batches.stream_totals()}
    skipped = {found.stream_id: found.rows for found in store.source_files.left_out()}
    for stream in store.streams.all():
        aside = store.source_files.set_aside(stream.id)
        found = counters.get(stream.id)
        profile = profiles.get(stream.id)
        rate = None if profile is None else profile.rate_per_s
        row_bytes = None if profile is None else profile.row_bytes
        yield StreamStatistics(
            stream=stream.name,
            rows=0 if found is None else found.rows,
            late_rows=0 if found is None else found.late_rows,
            rejected_rows=0 if found is None else found.rejected_rows,
            files_set_aside=len(aside),
            set_aside=tuple((file.path, file.reason or "") for file in aside[-10:]),
            skipped_rows=skipped.get(stream.id, 0),
            warnings=_warnings(store, stream, aside),
            watermark_us=None if found is None else found.watermark_us,
            max_event_time_us=None if found is None else found.max_event_time_us,
            rate_per_s=_value(rate),
            rate_age_s=_age_s(now_us, rate),
            row_bytes=_value(row_bytes),
            row_bytes_age_s=_age_s(now_us, row_bytes),
            scramble=scrambles.get(stream.id),
            state_bytes=held[-1][1][stream.id] if held else 0,
            state_cap_bytes=None if stream.state_cap_mb is None else stream.state_cap_mb * MEGABYTE,
            state_growth_per_s=(held[-1][1][stream.id] - held[0][1][stream.id]) / span_s if span_s else None,
            horizon_us=horizons.get(stream.id),
        )


def stream_bytes(manifest: BatchManifest) -> Counter[int]:
    """Return the bytes of each stream's rows in the state, all families together."""
    held = Counter[int]()
    for counters in manifest.slices:
        if counters.own_bytes:
            held[family_streams(counters.family)[counters.side == "b"]] += counters.own_bytes
    return held


def _warnings(store: Store, stream: Stream, aside: Sequence[SourceFile]) -> tuple[str, ...]:
    stopped = next((file for file in aside if file.verdict == "stops"), None)
    if stopped is not None:
        hint = f'correct the file, then "sluice stream retry {stream.name}"'
        return (f'stream "{stream.name}" has stopped at file "{stopped.path}": {stopped.reason}; {hint}',)
    if not isinstance(stream.source, FilesSource) or store.source_files.count(stream.id):
        return ()
    try:
        return source_warnings(stream, stream.source)
    except OSError as error:
        return (f'files of stream "{stream.name}" cannot be read: {error}',)


def _filters(profile: Profile, names: Mapping[int, str], now_us: int) -> Iterable[FilterStatistics]:
    for found in profile.filters:
        age_s = _age_s(now_us, found.selectivity)
        if found.stream_id in names and age_s is not None:
            yield FilterStatistics(names[found.stream_id], found.sql, found.selectivity.value, age_s)


def _families(
    recent: Sequence[BatchManifest],
    profiles: Mapping[str, FamilyProfile],
    names: Mapping[int, str],
    now_us: int,
) -> Iterable[FamilyStatistics]:
    slices = [s for m in recent for s in m.slices]
    undecided = {(c.family, c.side): c.undecided for m in recent[-1:] for c in m.absence}
    marks = {(c.family, c.side): c.marks for m in recent[-1:] for c in m.absence}
    open_groups = {c.family: c.open for m in recent[-1:] for c in m.groups}
    closed_groups = Counter[str]()
    for group in (c for m in recent for c in m.groups):
        closed_groups[group.family] += group.closed
    sent = Counter[str]()
    for exchanged in (c for m in recent for c in m.exchanged):
        sent[exchanged.family] += exchanged.rows
    absent, matched = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for counters in (c for m in recent for c in m.absence):
        absent[counters.family, counters.side] += counters.absent
        matched[counters.family, counters.side] += counters.matched
    for family in sorted({s.family for s in slices}):
        own = [s for s in slices if s.family == family]
        found = profiles.get(family)
        selectivity = None if found is None else found.join_selectivity
        keys = [] if found is None else [found.keys_a, found.keys_b, found.skew_a, found.skew_b]
        keys_a, keys_b, skew_a, skew_b = keys or [None] * 4
        left = {
            side: sum(s.left for s in own if s.side == side) for side in "ab" if (family, side) in matched
        }
        yield FamilyStatistics(
            family=family,
            probes=sum(s.males for s in own if s.slice == 1),
            pairs_touched=sum(s.touched for s in own),
            pairs_compared=sum(s.product for s in own),
            results=sum(s.results for s in own),
            join_selectivity=_value(selectivity),
            join_selectivity_age_s=_age_s(now_us, selectivity),
            keys_a=_value(keys_a),
            keys_b=_value(keys_b),
            skew_a=_value(skew_a),
            skew_b=_value(skew_b),
            keys_age_s=_age_s(now_us, *keys),
            undecided_a=undecided.get((family, "a")),
            undecided_b=undecided.get((family, "b")),
            absent_a=absent.get((family, "a")),
            absent_b=absent.get((family, "b")),
            matched_a=matched.get((family, "a")),
            matched_b=matched.get((family, "b")),
            marks_a=marks.get((family, "a")),
            marks_b=marks.get((family, "b")),
            left_a=left.get("a"),
            left_b=left.get("b"),
            open_groups=open_groups.get(family),
            closed_groups=closed_groups.get(family),
            exchange_rows=sent[family] if any(map(is_exchanged, family_streams(family))) else None,
            exchange_seconds=_exchange_seconds(recent, family),
            again_rows=sum(s.again for s in own) or None,
            again_partials=sum(s.partials for s in own) or None,
            rings=tuple(ring_statistics(recent, family)),
            ordered=tuple(order_statistics(recent, family, found, names)),
        )


def _exchange_seconds(recent: Sequence[BatchManifest], family: str) -> float | None:
    """Return the mean seconds that pairs took to reach a family, or None if no sent pairs were joined."""
    seconds = [
        (following.committed_at_us - batch.committed_at_us) / 1e6
        for batch, following in pairwise(recent)
        if any(counters.family == family for counters in batch.exchanged)
    ]
    return _mean(seconds) if seconds else None


def _imbalance(batches: Iterable[tuple[int, int, BatchManifest]]) -> float | None:
    """Return the load of the hottest buckets divided by the mean load, or None without load.

    Sums over all batches are compared, because a batch takes as long as its own hottest bucket, which can
    differ between batches. ``batches``: load of the hottest bucket, load of all buckets, manifest.
    """
    known = [(hottest * m.buckets.buckets, every) for hottest, every, m in batches if m.buckets.buckets]
    total = sum(every for _, every in known)
    return sum(hottest for hottest, _ in known) / total if total else None


def _value(measure: Measure | None) -> float | None:
    return None if measure is None else measure.value


def _age_s(now_us: int, *measures: Measure | None) -> float | None:
    """Return the age of the oldest measure, seconds, or None without measures."""
    moments = [m.at_us for m in measures if m is not None and m.at_us is not None]
    return (now_us - min(moments)) / 1e6 if moments else None


def _recent_rate(recent: tuple[BatchManifest, ...]) -> tuple[int, float]:
    if len(recent) < 2:
        return 0, 0.0
    rows = sum(c.rows for m in recent[1:] for c in m.streams)
    return rows, (recent[-1].committed_at_us - recent[0].committed_at_us) / 1e6


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
