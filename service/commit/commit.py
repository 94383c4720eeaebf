"""The commit of a batch: result files first, then one manifest that makes them visible.

The buckets report at least once per batch (``commit.reports``), and a replayed batch gives the same rows. So
the first manifest of a batch stays, later ones are dropped with their files, and files that no manifest names
are swept at the next start.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from catalog.clock import wall_clock_us
from catalog.errors import InvariantBroken
from catalog.store.store import Store
from catalog.values.batch import (
    BatchManifest,
    BucketCounters,
    CpuCounters,
    FilterCounters,
    KeyCounters,
    ResultFile,
    SliceCounters,
    StreamCounters,
)
from service.commit.reported_routes import ReportedRoutes, read_routes
from service.commit.reports import Report
from service.commit.route_dictionary import KnownRoutes
from service.commit.sweep import sweep
from service.config.failpoints import reached

log = logging.getLogger(__name__)

_SUMMED = (
    "rows",
    "bytes",
    "segments",
    "touched",
    "males",
    "inserted",
    "moved_in",
    "filtered",
    "purged",
    "results",
    "candidates",
    "own_bytes",
    "lying",
    "made",
)


@dataclass(frozen=True, slots=True)
class BatchCommitter:
    """Commits the batches of one engine.

    Attributes:
        store: Catalog.
        results_dir: Directory of result files.
        late_dir: Directory of late rows.
        epoch: Fencing epoch of the engine.
        engine_lock: Path of the lock file, for failpoints.
        tell: Called after each commit.
    """

    store: Store
    results_dir: Path
    late_dir: Path
    epoch: int
    engine_lock: str
    tell: Callable[[], None]
    _routes: KnownRoutes = field(default_factory=KnownRoutes)

    def __call__(self, reports: Sequence[Report]) -> None:
        """Commit one batch.

        Args:
            reports: What ``service.job.chain_processor`` says of each bucket.

        Raises:
            FencedOut: Another engine has taken over.
            InvariantBroken: Buckets disagree.
        """
        manifest = self._manifest(reports)
        batch = manifest.batch
        reached("before-result-commit", batch, self.engine_lock)
        if self.store.commit_batch(manifest):
            self._routes.committed(manifest)
        else:
            # The engine before wrote its routes, into a generation of its own: the next batch begins ours.
            log.info("batch was committed before", extra={"batch": batch})
            self._remove(manifest)
        reached("after-result-commit", batch, self.engine_lock)
        self.tell()

    def sweep(self) -> int:
        """Remove files that no manifest names; return how many."""
        return sweep(self.store, self.results_dir, self.late_dir)

    def _remove(self, manifest: BatchManifest) -> None:
        kept = self.store.manifest(manifest.batch)
        named = {f.path for f in (*kept.files, *kept.late_files)} if kept is not None else set()
        for directory, files in ((self.results_dir, manifest.files), (self.late_dir, manifest.late_files)):
            for file in files:
                if file.path not in named:
                    (directory / file.path).unlink(missing_ok=True)

    def _manifest(self, reports: Sequence[Report]) -> BatchManifest:
        numbers = {report["batch"] for report in reports}
        if len(numbers) != 1:
            raise InvariantBroken(f"buckets disagree about the batch: {sorted(numbers)}")
        batch = numbers.pop()
        versions = {report["plan_version"] for report in reports}
        if len(versions) != 1:
            raise InvariantBroken(f"batch {batch} has several plan versions: {sorted(versions)}")
        version = versions.pop()
        routes = [facts for report in reports for facts in report["routes"]]
        began_us = min(report["began_us"] for report in reports if report["began_us"] is not None)
        now_us = wall_clock_us()
        manifest = BatchManifest(
            batch=batch,
            epoch=self.epoch,
            plan_version=version,
            files=_files(reports, "files"),
            late_files=self._late_files(reports),
            routes=(),
            streams=_stream_counters(reports, batch),
            slices=_slice_counters(reports),
            query_rows=_query_rows(routes),
            started_at_us=min(began_us, now_us),  # clocks of workers elsewhere may be ahead
            committed_at_us=now_us,
            filters=_filter_counters(reports),
            keys=_key_counters(reports),
            cpu=CpuCounters(
                pack_us=sum(report["cpu"]["pack_us"] for report in reports),
                chain_us=sum(report["cpu"]["chain_us"] for report in reports),
            ),
            buckets=_bucket_counters(reports),
        )
        return self._routes.with_routes(manifest, map(read_routes, routes), self.store.plan_version)

    def _late_files(self, reports: Sequence[Report]) -> tuple[ResultFile, ...]:
        files = _files(reports, "late_files")
        return tuple(
            ResultFile(file.path, self.store.stream_by_id(int(file.family)).name, file.rows) for file in files
        )


def _query_rows(routes: Iterable[ReportedRoutes]) -> tuple[tuple[int, int], ...]:
    """Add up the pairs of each query that has any."""
    sums: dict[int, int] = defaultdict(int)
    for facts in routes:
        for query_id, rows in zip(facts["queries"], facts["rows"], strict=True):
            sums[query_id] += rows
    return tuple(sorted((query_id, rows) for query_id, rows in sums.items() if rows))


def _files(reports: Sequence[Report], kind: str) -> tuple[ResultFile, ...]:
    found = [ResultFile(**facts) for report in reports for facts in report[kind]]
    return tuple(sorted(found, key=lambda file: (file.family, file.path)))


def _stream_counters(reports: Sequence[Report], batch: int) -> tuple[StreamCounters, ...]:
    """Every bucket saw every header, so they must agree; late rows were counted in one bucket each."""
    counters = []
    for stream_id in sorted(reports[0]["streams"], key=int):
        facts = [report["streams"][stream_id] for report in reports]
        if len({(f["rows"], f["watermark_us"]) for f in facts}) != 1:
            raise InvariantBroken(f"buckets disagree about stream {stream_id} in batch {batch}")
        counters.append(
            StreamCounters(
                stream_id=int(stream_id),
                rows=facts[0]["rows"],
                late_rows=sum(f["late_rows"] for f in facts),
                rejected_rows=facts[0]["rejected_rows"],
                watermark_us=facts[0]["watermark_us"],
                max_event_time_us=facts[0]["max_event_time_us"],
            )
        )
    return tuple(counters)


def _slice_counters(reports: Sequence[Report]) -> tuple[SliceCounters, ...]:
    sums: dict[tuple[str, str, str, int], dict[str, int]] = {}
    lazy: set[tuple[str, str, str, int]] = set()
    for report in reports:
        for facts in report["slices"]:
            name = (facts["family"], facts["join"], facts["side"], facts["slice"])
            if facts["lazy_end"]:
                lazy.add(name)
            total = sums.setdefault(name, dict.fromkeys(_SUMMED, 0))
            for counter in _SUMMED:
                total[counter] += facts[counter]
    return tuple(
        SliceCounters(
            family=name[0], join=name[1], side=name[2], slice=name[3], lazy_end=name in lazy, **total
        )
        for name, total in sorted(sums.items())
    )


def _filter_counters(reports: Sequence[Report]) -> tuple[FilterCounters, ...]:
    """Each partition of the input told one bucket."""
    sums: dict[tuple[str, str, int], list[int]] = {}
    for report in reports:
        for facts in report["filters"]:
            total = sums.setdefault((facts["family"], facts["side"], facts["bit"]), [0, 0])
            total[0] += facts["rows"]
            total[1] += facts["passed"]
    return tuple(FilterCounters(*name, *total) for name, total in sorted(sums.items()))


def _bucket_counters(reports: Sequence[Report]) -> BucketCounters:
    work = [
        sum(keys["copies"] for keys in report["keys"]) + sum(piece["results"] for piece in report["slices"])
        for report in reports
    ]
    hottest_us = max(report["cpu"]["chain_us"] for report in reports)
    return BucketCounters(len(reports), sum(work), max(work), hottest_us)


def _key_counters(reports: Sequence[Report]) -> tuple[KeyCounters, ...]:
    """A key is counted in one bucket, so all but the largest add up."""
    sums: dict[tuple[str, str], KeyCounters] = {}
    for report in reports:
        for facts in report["keys"]:
            found = KeyCounters(**facts)
            name = (found.family, found.side)
            if name in sums:
                known = sums[name]
                found = KeyCounters(
                    family=found.family,
                    side=found.side,
                    rows=known.rows + found.rows,
                    keys=known.keys + found.keys,
                    largest=max(known.largest, found.largest),
                    squares=known.squares + found.squares,
                    copies=known.copies + found.copies,
                )
            sums[name] = found
    return tuple(counters for _, counters in sorted(sums.items()))
