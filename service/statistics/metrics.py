"""Metrics for Prometheus, read from the catalog at each request.

Nothing is counted twice: the metrics are the totals of the manifests, so they survive a restart and never run
ahead of visible results. Refused requests and faults of background work are counted by the process, from zero
at each start. Metrics per query or slice have a bounded number of named series (``series_bound``). Names
follow Prometheus: base units, ``_total`` for counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from catalog.values.batch import BatchManifest
from catalog.values.sink import SinkRecord
from catalog.values.stream import MEGABYTE
from service.inputs.limits.backlog import Backlog
from service.statistics.series_bound import Labels, SeriesBound, other
from service.statistics.statistics import stream_bytes

#: Media type of the text format.
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: All states of an engine; the metric is 1 for exactly one of them.
ENGINE_STATES = ("standby", "starting", "running", "paused", "failed", "stopped")
#: All limits that refuse posted events.
INGEST_LIMITS = ("rows", "bytes", "disk")
#: Lag, in seconds, from which a sink gets a named series before sinks that have more rows but less lag.
_LONG_LAG_S = 60.0


@dataclass(frozen=True, slots=True)
class IngestFigures:
    """Backlogs, refused requests and free space at present.

    Attributes:
        backlogs: Posted events that no committed batch has read, by stream.
        refused: Requests that were refused since the start, by the limit that was reached.
        free_bytes: Free space of the data directory's file system.
        least_bytes: Free space below which posted events are refused.
        held: Whether batches take no input until more space is free.
    """

    backlogs: Mapping[str, Backlog]
    refused: Mapping[str, int]
    free_bytes: int
    least_bytes: int
    held: bool


@dataclass(frozen=True, slots=True)
class ExpectedCost:
    """Expected cost of a plan, over all families.

    Attributes:
        rows: Rows held.
        cpu_s: CPU seconds per second of event time.
    """

    rows: float
    cpu_s: float


class Metrics:
    """Metrics of one process; the sums of series that are not named are kept between calls.

    Args:
        most_series: Maximum number of named series per metric.
    """

    def __init__(self, most_series: int = 100) -> None:
        self._bound = SeriesBound(most_series)

    def text(
        self,
        store: Store,
        engine_state: str | None,
        ingest: IngestFigures | None,
        faults: Mapping[str, int] | None = None,
        expected: Mapping[str, ExpectedCost] | None = None,
        results_us: int | None = None,
    ) -> bytes:
        """Return metrics in Prometheus' text format.

        Only the process of the active engine reports metrics from the catalog, so that sums over processes
        are correct. A stand-by reports only that it is a stand-by.

        Args:
            store: The catalog.
            engine_state: One of ``ENGINE_STATES``, or None if the process has no engine.
            ingest: Back-pressure, or None if the process takes no events.
            faults: Number of unexpected failures per part of the process's background work.
            expected: Expected costs by strategy: of the plan, and of the same queries ``unshared``.
            results_us: Time for which all results are kept, whether or not a sink still needs them, µs, or
                None if results are never removed.
        """
        registry = CollectorRegistry(auto_describe=False)
        registry.register(
            _StoreCollector(
                store, engine_state, ingest, faults or {}, expected or {}, results_us, self._bound
            )
        )
        return generate_latest(registry)


class _StoreCollector(Collector):
    """Makes metric families from the catalog's totals, the last manifest, and back-pressure."""

    def __init__(
        self,
        store: Store,
        engine_state: str | None,
        ingest: IngestFigures | None,
        faults: Mapping[str, int],
        expected: Mapping[str, ExpectedCost],
        results_us: int | None,
        bound: SeriesBound,
    ) -> None:
        self._results_us = results_us
        self._bound = bound
        self._expected = expected
        self._faults = faults
        self._store = store
        self._engine_state = engine_state
        self._ingest = ingest

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family."""
        if self._engine_state is not None:
            state = GaugeMetricFamily(
                "sluice_engine_state", "1 for the state the engine is in.", labels=["state"]
            )
            for name in ENGINE_STATES:
                state.add_metric([name], float(name == self._engine_state))
            yield state
        if self._engine_state not in (None, "standby"):
            yield from self._engine()
            yield from self._streams()
            yield from self._queries()
            yield from self._sinks()
            yield from self._state()
        if self._ingest is not None:
            yield from self._back_pressure(self._ingest)
        failed = CounterMetricFamily(
            "sluice_background_faults",
            "Unexpected failures of background work of the process.",
            labels=["part"],
        )
        for part, count in self._faults.items():
            failed.add_metric([part], count)
        yield failed

    def _engine(self) -> Iterator[Metric]:
        totals = self._store.batches.totals()
        yield CounterMetricFamily("sluice_batches", "Committed micro-batches.", value=totals.batches)
        last = self._store.batches.last_manifest()
        yield GaugeMetricFamily(
            "sluice_plan_version",
            "Plan version of the last batch.",
            value=last.plan_version if last is not None else 0,
        )
        if last is not None:
            seconds = (last.committed_at_us - last.started_at_us) / 1e6
            yield GaugeMetricFamily(
                "sluice_last_batch_seconds", "Time that the last batch took.", value=seconds
            )
            cpu = GaugeMetricFamily(
                "sluice_last_batch_cpu_seconds",
                "CPU time of the job's Python in the last batch, all tasks together.",
                labels=["part"],
            )
            cpu.add_metric(["pack"], last.cpu.pack_us / 1e6)
            cpu.add_metric(["chain"], last.cpu.chain_us / 1e6)
            yield cpu
            yield GaugeMetricFamily(
                "sluice_last_batch_committed_timestamp_seconds",
                "When the last batch was committed.",
                value=last.committed_at_us / 1e6,
            )

    def _streams(self) -> Iterator[Metric]:
        rows = CounterMetricFamily("sluice_input_rows", "Rows read, late ones included.", labels=["stream"])
        late = CounterMetricFamily("sluice_late_rows", "Rows dropped as late.", labels=["stream"])
        rejected = CounterMetricFamily(
            "sluice_rejected_rows", "Rows without an event time.", labels=["stream"]
        )
        watermark = GaugeMetricFamily(
            "sluice_watermark_timestamp_seconds", "Event time below which rows are late.", labels=["stream"]
        )
        names = {stream.id: stream.name for stream in self._store.streams.all()}
        for counters in self._store.batches.stream_totals():
            if (name := names.get(counters.stream_id)) is None:
                continue  # The stream was removed, and another stream may have taken its name.
            rows.add_metric([name], counters.rows)
            late.add_metric([name], counters.late_rows)
            rejected.add_metric([name], counters.rejected_rows)
            if counters.watermark_us is not None:
                watermark.add_metric([name], counters.watermark_us / 1e6)
        yield from (rows, late, rejected, watermark)
        yield from self._held(names)
        aside = GaugeMetricFamily(
            "sluice_files_set_aside", "Files set aside, of which no row is read.", labels=["stream"]
        )
        skipped = GaugeMetricFamily(
            "sluice_skipped_rows", "Bad rows of listed files that are skipped.", labels=["stream"]
        )
        left_out = {found.stream_id: found for found in self._store.source_files.left_out()}
        for stream_id, name in names.items():
            found = left_out.get(stream_id)
            aside.add_metric([name], 0 if found is None else found.files)
            skipped.add_metric([name], 0 if found is None else found.rows)
        yield from (aside, skipped)

    def _held(self, names: Mapping[int, str]) -> Iterator[Metric]:
        """Yield the state of each stream, its cap, and the horizon below which rows were removed."""
        size = GaugeMetricFamily(
            "sluice_stream_state_bytes", "Bytes that rows of the stream take in the state.", labels=["stream"]
        )
        cap = GaugeMetricFamily(
            "sluice_stream_state_cap_bytes",
            "Maximum bytes that rows of the stream may take in the state.",
            labels=["stream"],
        )
        horizon = GaugeMetricFamily(
            "sluice_horizon_timestamp_seconds",
            "Event time below which rows were removed because of the stream's cap.",
            labels=["stream"],
        )
        last = self._store.batches.last_manifest()
        held = {} if last is None else stream_bytes(last)
        for stream in self._store.streams.all():
            size.add_metric([stream.name], held.get(stream.id, 0))
            if stream.state_cap_mb is not None:
                cap.add_metric([stream.name], stream.state_cap_mb * MEGABYTE)
        for counters in () if last is None else last.streams:
            if counters.stream_id in names and counters.horizon_us is not None:
                horizon.add_metric([names[counters.stream_id]], counters.horizon_us / 1e6)
        yield from (size, cap, horizon)

    def _back_pressure(self, ingest: IngestFigures) -> Iterator[Metric]:
        labels = ["stream"]
        rows = GaugeMetricFamily(
            "sluice_backlog_rows", "Posted events that no committed batch has read.", labels=labels
        )
        size = GaugeMetricFamily(
            "sluice_backlog_bytes",
            "Size in the event log of posted events that no committed batch has read.",
            labels=labels,
        )
        for name, backlog in ingest.backlogs.items():
            rows.add_metric([name], backlog.rows)
            size.add_metric([name], backlog.bytes)
        refused = CounterMetricFamily(
            "sluice_ingest_refused_requests",
            "Requests with events that were refused, by the limit that was reached.",
            labels=["limit"],
        )
        for limit in INGEST_LIMITS:
            refused.add_metric([limit], ingest.refused.get(limit, 0))
        yield from (rows, size, refused)
        yield GaugeMetricFamily(
            "sluice_disk_free_bytes", "Free space for the data directory.", value=ingest.free_bytes
        )
        yield GaugeMetricFamily(
            "sluice_disk_free_least_bytes", "Free space below which ingest stops.", value=ingest.least_bytes
        )
        yield GaugeMetricFamily(
            "sluice_input_held",
            "1 while batches take no input because space is short.",
            value=float(ingest.held),
        )

    def _queries(self) -> Iterator[Metric]:
        results = CounterMetricFamily("sluice_query_results", "Results of running queries.", labels=["query"])
        totals = self._store.counts.totals()
        by_query: dict[Labels, float] = {
            (record.query.name,): float(totals.get(record.query.id, 0))
            for record in self._store.queries.running()
        }
        most = sorted(by_query, key=lambda labels: (-by_query[labels], labels))[: self._bound.most]
        self._count(results, by_query, most)
        yield results

    def _count(
        self,
        metric: CounterMetricFamily,
        values: Mapping[Labels, float],
        named: Sequence[Labels],
        kept: int = 0,
    ) -> None:
        """Add the named series of a counter to a metric, and the sums of the unnamed series.

        Args:
            metric: The metric.
            values: Values by labels.
            named: Labels with a series of their own.
            kept: Number of trailing labels by which the sums are still grouped.
        """
        shown = {labels: values[labels] for labels in named}
        for labels, value in (shown | self._bound.others(metric.name, values, set(named), kept)).items():
            metric.add_metric(labels, value)

    @staticmethod
    def _gauge(
        metric: GaugeMetricFamily,
        values: Mapping[Labels, float],
        named: Sequence[Labels],
        kept: int = 0,
        fold: Callable[[Iterable[float]], float] = sum,
    ) -> None:
        """Add a gauge's named series, and its unnamed series combined by ``fold``; see ``_count``."""
        others: dict[Labels, list[float]] = {}
        of_its_own = set(named)
        for labels, value in values.items():
            if labels in of_its_own:
                metric.add_metric(labels, value)
            else:
                others.setdefault(other(labels, kept), []).append(value)
        for labels, folded in others.items():
            metric.add_metric(labels, fold(folded))

    def _sinks(self) -> Iterator[Metric]:
        """Yield metrics of the sinks per query, also of former sinks until they have delivered everything."""
        labels = ["query", "type"]
        lag = GaugeMetricFamily(
            "sluice_sink_lag_batches", "Batches with results that wait to be delivered.", labels=labels
        )
        rows = CounterMetricFamily("sluice_sink_rows", "Results delivered.", labels=labels)
        batches = CounterMetricFamily("sluice_sink_batches", "Batches delivered.", labels=labels)
        failures = CounterMetricFamily("sluice_sink_failures", "Attempts that failed.", labels=labels)
        lost_rows = CounterMetricFamily("sluice_sink_lost_rows", "Results never delivered.", labels=labels)
        lost_batches = CounterMetricFamily(
            "sluice_sink_lost_batches", "Batches with results never delivered.", labels=labels
        )
        counters = (rows, batches, failures, lost_rows, lost_batches)
        lag_s = GaugeMetricFamily(
            "sluice_sink_lag_seconds", "Time for which the oldest waiting results have waited.", labels=labels
        )
        retained = GaugeMetricFamily(
            "sluice_sink_kept_bytes",
            "Size of the result files that are kept beyond their retention until the sink has received them.",
            labels=labels,
        )
        totals: dict[Labels, list[int]] = {}
        longest_s: dict[Labels, float] = {}
        most_bytes: dict[Labels, float] = {}
        now_us = wall_clock_us()
        records = self._store.sinks.all()
        kept_bytes = self._kept_bytes(records, now_us)
        for record in records:
            if record.sink is not None:
                where = record.query, str(record.sink.type)
                of = totals.setdefault(where, [0] * (1 + len(counters)))
                delivered = (record.pending, record.rows, record.batches, record.failures)
                counted = (*delivered, record.lost_rows, record.lost)
                of[:] = [total + more for total, more in zip(of, counted, strict=True)]
                longest_s[where] = max(longest_s.get(where, 0.0), record.lag_s(now_us))
                most_bytes[where] = max(most_bytes.get(where, 0), kept_bytes.get(record.id, 0))
        named = sorted(totals, key=lambda where: (longest_s[where] < _LONG_LAG_S, -totals[where][1], where))
        named = named[: self._bound.most]
        self._gauge(lag, {where: of[0] for where, of in totals.items()}, named, kept=1)
        self._gauge(lag_s, longest_s, named, kept=1, fold=max)
        self._gauge(retained, most_bytes, named, kept=1, fold=max)
        for number, metric in enumerate(counters, start=1):
            self._count(metric, {where: of[number] for where, of in totals.items()}, named, kept=1)
        yield from (lag, *counters, lag_s, retained)

    def _kept_bytes(self, records: Sequence[SinkRecord], now_us: int) -> Mapping[int, int]:
        """Return, by sink id, the size of the files kept beyond their retention because the sink waits."""
        waits_from = {r.id: r.waiting_from for r in records if r.waiting_from is not None}
        if self._results_us is None or not waits_from:
            return {}
        end = self._store.retention.horizon(now_us - self._results_us)
        if min(waits_from.values()) >= end:
            return {}
        sizes = self._store.result_files.sizes_before(end)
        return {sink: sizes.since(batch) for sink, batch in waits_from.items()}

    def _absence(self, last: BatchManifest | None) -> Iterator[Metric]:
        labels = ["family", "side"]
        undecided = GaugeMetricFamily(
            "sluice_undecided_rows", "Rows held that may still turn out to have no partner.", labels=labels
        )
        marks = GaugeMetricFamily(
            "sluice_marks", "Stored distances of rows to their nearest partners.", labels=labels
        )
        judged = {(c.family, c.side): c for c in (last.absence if last is not None else ())}
        most = sorted(judged, key=lambda where: (-judged[where].undecided, where))[: self._bound.most]
        self._gauge(undecided, {where: c.undecided for where, c in judged.items()}, most)
        self._gauge(marks, {where: c.marks for where, c in judged.items()}, most)
        yield from (undecided, marks)

    def _state(self) -> Iterator[Metric]:
        labels = ["family", "join", "side", "slice"]
        rows = GaugeMetricFamily("sluice_slice_rows", "Rows held.", labels=labels)
        size = GaugeMetricFamily("sluice_slice_bytes", "Encoded bytes held.", labels=labels)
        segments = GaugeMetricFamily("sluice_slice_segments", "Segments held.", labels=labels)
        last = self._store.batches.last_manifest()
        slices = {
            (counters.family, counters.join, counters.side, str(counters.slice)): counters
            for counters in (last.slices if last is not None else ())
        }
        largest = sorted(slices, key=lambda where: (-slices[where].bytes, where))[: self._bound.most]
        self._gauge(rows, {where: counters.rows for where, counters in slices.items()}, largest)
        self._gauge(size, {where: counters.bytes for where, counters in slices.items()}, largest)
        self._gauge(segments, {where: counters.segments for where, counters in slices.items()}, largest)
        yield from (rows, size, segments)
        yield from self._absence(last)
        held = GaugeMetricFamily(
            "sluice_expected_rows",
            "Rows held by the plan with every window full, and by the same queries unshared.",
            labels=["strategy"],
        )
        cpu = GaugeMetricFamily(
            "sluice_expected_cpu_ratio",
            "CPU seconds per second of event time, for the plan and for the same queries unshared.",
            labels=["strategy"],
        )
        for strategy, cost in self._expected.items():
            held.add_metric([strategy], cost.rows)
            cpu.add_metric([strategy], cost.cpu_s)
        yield from (held, cpu)
        totals = self._store.batches.totals()
        yield GaugeMetricFamily(
            "sluice_state_rows_peak",
            "Maximum number of rows held after any batch so far.",
            value=totals.state_rows_peak,
        )
        yield GaugeMetricFamily(
            "sluice_state_bytes_peak",
            "Maximum encoded bytes held after any batch so far.",
            value=totals.state_bytes_peak,
        )
