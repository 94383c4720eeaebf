"""The commit of a batch: its result files are synced first, then one manifest makes them visible.

Each bucket reports at least once per batch (``reporting``), and a replayed batch produces the same rows.
Therefore the first manifest of a batch is kept. Later manifests of the batch are dropped, and their files are
removed. Files that no manifest names are removed at the next start.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from catalog.errors import InvariantBroken
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from catalog.values.batch import BatchManifest, ResultFile
from catalog.values.counters.add_up import add_up
from catalog.values.counters.batch_counters import (
    BucketCounters,
    CpuCounters,
    StreamCounters,
    StreamPunctuations,
)
from catalog.values.counters.family_counters import (
    AbsenceCounters,
    FilterCounters,
    GroupCounters,
    KeyCounters,
    MemoryCounters,
    ProbeCounters,
    PunctuationCounters,
    UnmatchedCounters,
)
from catalog.values.counters.slice_table import add_up_slices
from catalog.values.routes.counts.query_rows import summed_rows
from catalog.values.routes.query_sets import Int64s
from catalog.values.routes.route_table import RouteTable
from operators.storage.folder import Folder, place_of, remove, stored
from service.checkpoint.spark_log import Offset, SparkLog
from service.commit.failpoints import reached
from service.commit.reporting.bucket_report import BucketReport
from service.commit.route_dictionary import RouteDictionary
from service.commit.sweep import sweep
from service.commit.sync import sync_file_systems
from service.errors import CorruptResults, StorageDiffers
from service.inputs.reading.voided import refuse_voided
from service.results.files.result_check import check_files

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchCommitter:
    """Commits the batches of one engine.

    Attributes:
        store: Catalog.
        results_dir: Folder of result files.
        late_dir: Folder of late rows.
        epoch: Fencing epoch of the engine.
        engine_lock: Path of the engine's lock file, for failpoints.
        log: Spark's logs, which contain the offsets at which the input of a batch begins and ends.
        keep_voided: Writes dead letters of the input that a batch leaves out, and returns the folders that it
            wrote to. It is called with the batch and the offsets at the start and end of its input.
    """

    store: Store
    results_dir: Folder
    late_dir: Folder
    epoch: int
    engine_lock: str
    log: SparkLog
    keep_voided: Callable[[int, Offset, Offset], tuple[Folder, ...]]
    _routes: RouteDictionary = field(default_factory=RouteDictionary)

    def __call__(self, reports: Sequence[BucketReport]) -> None:
        """Commit one batch.

        Args:
            reports: Report of each bucket, from ``service.job.chain_processor``.

        Raises:
            FencedOut: Another engine has taken over.
            BatchDiffers: The batch was committed before with other input or other row counts.
            InvariantBroken: The buckets' reports contradict each other, or Spark's offset log does not
                contain the batch.
            StorageDiffers: The engine does not find a file that a report names.
            BatchVoided: The batch was voided while it ran.
        """
        batch = _batch_of(reports)
        ends = self.log.input_range(batch)
        if ends is None:
            raise InvariantBroken(f"batch {batch} runs, but Spark's offset log does not contain it")
        manifest = self._manifest(reports, batch, ends)
        occurring = (RouteTable.decode(data) for report in reports for data in report.routes)
        plan_version, generation = self.store.control_log.plan, self.store.routes.generation
        routes = self._routes.new_routes(manifest, occurring, plan_version, generation)
        reached("before-result-commit", batch, self.engine_lock)
        etags = {path: etag for report in reports for path, etag in report.etags.items()}
        check_seen(self.results_dir, manifest.files, etags)
        check_seen(self.late_dir, manifest.late_files, etags)
        voided = self.keep_voided(batch, *ends)
        # The call syncs segments, results and Spark's files: the state of this batch and the log entries of
        # the previous one.
        sync_file_systems((self.log.checkpoint, self.results_dir, self.late_dir, *voided))
        with self.store.transaction():
            refuse_voided(self.store, manifest)
            is_new = self.store.batches.commit(manifest, routes)
        if is_new:
            self._routes.committed(manifest, routes)
        else:
            # A previous engine committed the batch, with its routes in a generation of that engine. The first
            # generation of this engine begins with the next batch.
            log.info("batch was committed before", extra={"batch": batch})
            self._keep_whole(manifest)
        reached("after-result-commit", batch, self.engine_lock)

    def unknown_routes(self, numbers: Int64s) -> Int64s:
        """Return those of the given route numbers that no batch of this engine has reported yet."""
        return self._routes.unknown(numbers)

    def sweep(self) -> int:
        """Remove files of uncommitted attempts and of dropped results; return the number of files."""
        return sweep(self.store, self.results_dir, self.late_dir, self.epoch)

    def _keep_whole(self, again: BatchManifest) -> None:
        """Keep the first attempt's files of a batch, or the second's if the first's are damaged."""
        kept = self.store.batches.manifest(again.batch)
        if kept is None:
            return
        try:
            check_files(self.results_dir, kept.files)
            check_files(self.late_dir, kept.late_files)
        except CorruptResults as error:
            log.warning("files of a batch replaced: %s", error.primary, extra={"batch": again.batch})
            self.store.batches.replace_files(again)
            kept, again = again, kept
        named = {f.path for f in (*kept.files, *kept.late_files)}
        for directory, files in ((self.results_dir, again.files), (self.late_dir, again.late_files)):
            remove(directory, (file.path for file in files if file.path not in named))

    def _manifest(
        self, reports: Sequence[BucketReport], batch: int, ends: tuple[Offset, Offset]
    ) -> BatchManifest:
        versions = {report.plan_version for report in reports}
        if len(versions) != 1:
            raise InvariantBroken(f"batch {batch} has several plan versions: {sorted(versions)}")
        version = versions.pop()
        began_us = min(report.began_us for report in reports if report.began_us is not None)
        now_us = wall_clock_us()
        manifest = BatchManifest(
            batch=batch,
            epoch=self.epoch,
            plan_version=version,
            files=_by_place(file for report in reports for file in report.files),
            late_files=self._late_files(reports),
            streams=_stream_counters(reports, batch),
            slices=add_up_slices([report.slices for report in reports]),
            query_rows=summed_rows([rows for report in reports for rows in report.query_rows]),
            started_at_us=min(began_us, now_us),  # the clock of a worker's machine may be ahead
            committed_at_us=now_us,
            filters=add_up((c for report in reports for c in report.filters), FilterCounters.KEY),
            keys=_key_counters(reports),
            absence=add_up((c for report in reports for c in report.absence), AbsenceCounters.KEY),
            cpu=CpuCounters(
                pack_us=sum(report.cpu.pack_us for report in reports),
                chain_us=sum(report.cpu.chain_us for report in reports),
            ),
            buckets=_bucket_counters(reports),
            input_end=tuple(sorted(ends[1].items())),
            punctuations=add_up((c for r in reports for c in r.punctuations), PunctuationCounters.KEY),
            received=add_up((c for r in reports for c in r.received), StreamPunctuations.KEY),
            groups=add_up((c for r in reports for c in r.groups), GroupCounters.KEY),
            exchanged=tuple(c for report in reports for c in report.exchanged),
            probes=add_up((c for r in reports for c in r.probes), ProbeCounters.KEY),
            held=tuple(c for report in reports for c in report.held),
            memory=add_up((c for r in reports for c in r.memory), MemoryCounters.KEY),
            unmatched=add_up((c for r in reports for c in r.unmatched), UnmatchedCounters.KEY),
        )
        return replace(manifest, digest=_digest(manifest, ends[0]))

    def _late_files(self, reports: Sequence[BucketReport]) -> tuple[ResultFile, ...]:
        return tuple(
            replace(file, family=self._late_of(file.family))
            for file in _by_place(file for report in reports for file in report.late_files)
        )

    def _late_of(self, told: str) -> str:
        """Return the ``family`` of a file of late rows with the stream's name in place of the stream's id."""
        stream_id, point, rest = told.partition(".")
        return f"{self.store.streams.by_id(int(stream_id)).name}{point}{rest}"


def check_seen(folder: Folder, files: Sequence[ResultFile], etags: Mapping[str, str]) -> None:
    """Refuse files that the engine does not find, or that differ from the files that the workers wrote.

    Args:
        folder: Folder that the engine reads.
        files: Files that the workers reported.
        etags: ETags of these files that the object store returned to the workers, by path.

    Raises:
        StorageDiffers: A file is missing, or the store reports another length or ETag than the worker did.
    """
    seen = stored(folder, [file.path for file in files])
    for file in files:
        found, etag = seen.get(file.path), etags.get(file.path)
        if found is None or found.bytes != file.bytes or (etag and found.etag and found.etag != etag):
            there = "no such file" if found is None else _facts(found.bytes, found.etag)
            raise StorageDiffers(
                f'the engine does not see file "{file.path}" as a worker wrote it',
                detail=f"The worker wrote {_facts(file.bytes, etag)}; in the engine's "
                f"{place_of(folder)} there is {there}.",
            )


def _batch_of(reports: Sequence[BucketReport]) -> int:
    numbers = {report.batch for report in reports}
    if len(numbers) != 1:
        raise InvariantBroken(f"buckets disagree about the batch: {sorted(numbers)}")
    return numbers.pop()


def _facts(length: int | None, etag: str | None) -> str:
    return f"{length} bytes" + ("" if etag is None else f" with ETag {etag}")


def _digest(manifest: BatchManifest, start: Offset) -> str:
    """Return a digest of input and row counts; a repeated batch has the same digest."""
    facts = [
        manifest.batch,
        manifest.plan_version,
        sorted(start.items()),
        manifest.input_end,
        sorted((s.stream_id, s.rows, s.late_rows, s.rejected_rows) for s in manifest.streams),
        manifest.query_rows,
        # These counters are left out if empty, so that digests written by older versions stay valid.
        *(
            [[(c.family, c.side, c.closed, c.violating) for c in manifest.punctuations]]
            if manifest.punctuations
            else []
        ),
        *([[(c.family, c.bucket, c.rows) for c in manifest.exchanged]] if manifest.exchanged else []),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _by_place(files: Iterable[ResultFile]) -> tuple[ResultFile, ...]:
    return tuple(sorted(files, key=lambda file: (file.family, file.path)))


def _stream_counters(reports: Sequence[BucketReport], batch: int) -> tuple[StreamCounters, ...]:
    """Sum the late rows of the buckets, which count each late row once; refuse any other difference."""
    counters = []
    for alike in zip(*(sorted(report.streams, key=_stream_id) for report in reports), strict=True):
        if len({replace(found, late_rows=0) for found in alike}) != 1:
            raise InvariantBroken(f"buckets disagree about stream {alike[0].stream_id} in batch {batch}")
        counters.append(replace(alike[0], late_rows=sum(found.late_rows for found in alike)))
    return tuple(counters)


def _stream_id(counters: StreamCounters) -> int:
    return counters.stream_id


def _bucket_counters(reports: Sequence[BucketReport]) -> BucketCounters:
    work = [
        sum(keys.copies for keys in report.keys) + int(report.slices.column("results").sum())
        for report in reports
    ]
    hottest_us = max(report.cpu.chain_us for report in reports)
    return BucketCounters(len(reports), sum(work), max(work), hottest_us)


def _key_counters(reports: Sequence[BucketReport]) -> tuple[KeyCounters, ...]:
    """Sum the key counters of the buckets, which have different keys; take the maximum of ``largest``."""
    found = [counters for report in reports for counters in report.keys]
    return tuple(
        replace(
            total, largest=max(c.largest for c in found if (c.family, c.side) == (total.family, total.side))
        )
        for total in add_up(found, KeyCounters.KEY)
    )
