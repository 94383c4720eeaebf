"""``sluice run``: run a workload over all available input to its end, with the engine of a service.

All data needed to continue a run after a crash are in ``DIR/_sluice``. The streams, queries and the whole
script are in the catalog before the first batch; scripted changes are control records that wait for their
batch.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from catalog.times.durations import MAX_TIME_US
from catalog.values.calibration import Calibration
from catalog.values.change import AddQuery, Change
from catalog.values.control import Heartbeat
from catalog.values.plan import Strategy
from catalog.values.query import UNBOUNDED_US, Query
from catalog.values.source_file import SourceFile
from catalog.values.stream import FilesSource, GeneratorSource, Stream
from operators.storage.folder import directory_here
from planner.build.objective import Objective
from planner.build.transitions.retained_boundaries import ByFamily
from service.config.calibration import data_dir_calibration
from service.config.data_dir import DataDir, ResultsForm, run_data_dir
from service.config.settings import Settings
from service.documents.workload import BoundWorkload, ScriptStep, Workload
from service.documents.yaml_files.yaml_document import ItemPath
from service.engine.engine import Engine
from service.errors import FileRefused, InvalidStream, OtherWorkload, UnreadableInput
from service.inputs.checks.validate import resolve_source
from service.inputs.reading.sample import WorkloadRows
from service.inputs.sources.listed.files import (
    in_words,
    list_files,
    source_warnings,
    wait_for_settled,
)
from service.jvm.jvm import Jvm
from service.planning.changes import ChangeStep, Resolver, record_steps
from service.planning.migrating.resolve_migration import resolve_migration
from service.planning.preview import Statistician
from service.planning.records.objective import objective_of
from service.planning.versions import Versions
from service.recovery.opening import open_catalog
from service.results.export import export_query, export_shared
from service.statistics.samples.sampling import SampleCache

log = logging.getLogger(__name__)

WORKLOAD_SETTING = "workload"


@dataclass(frozen=True, slots=True)
class FileSetAside:
    """File that was set aside, so none of its rows was read.

    Attributes:
        stream: Name of the file's stream.
        file: Path of the file.
        reason: Reason why the file was set aside.
    """

    stream: str
    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class FileWithBadRows:
    """File with skipped rows.

    Attributes:
        stream: Name of the file's stream.
        file: Path of the file.
        rows: Number of skipped rows.
    """

    stream: str
    file: str
    rows: int


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Summary of a run.

    Attributes:
        input_rows: Rows read, including late ones.
        late_rows: Rows dropped as late.
        seconds: Wall time of this call of ``run_workload``, without earlier calls that it continues.
        rows_per_s: Input rows per second of wall time (``seconds``).
        batches: Micro-batches committed.
        state_rows_peak: Maximum number of rows held at the end of any batch.
        state_bytes_peak: Maximum encoded bytes held at the end of any batch.
        results: Result rows per query.
        plan_version: Plan version of the last batch.
        strategy: Strategy in the last plan version for families without a strategy of their own.
        set_aside: Files that were set aside.
        skipped: Files with skipped rows.
        dead_letters: Directory with the skipped rows, or None if no row was skipped.
    """

    input_rows: int
    late_rows: int
    seconds: float
    rows_per_s: float
    batches: int
    state_rows_peak: int
    state_bytes_peak: int
    results: dict[str, int]
    plan_version: int
    strategy: str
    set_aside: tuple[FileSetAside, ...]
    skipped: tuple[FileWithBadRows, ...]
    dead_letters: str | None


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of a run.

    Attributes:
        rows: Rows of committed batches.
        batches: Batches committed.
        total_rows: Number of rows of all sources, or None if it is unknown for some source.
    """

    rows: int
    batches: int
    total_rows: int | None


#: Context manager that follows a run, given a function that returns the progress.
Watch = Callable[[Callable[[], RunProgress]], AbstractContextManager[object]]


def run_workload(
    bound: BoundWorkload,
    out: Path,
    *,
    results: ResultsForm,
    settings: Settings,
    strategy: Strategy | None = None,
    jvm: Jvm | None = None,
    final: bool = False,
    watch: Watch = nullcontext,
    tell: Callable[[str], None] = log.warning,
) -> RunSummary:
    """Run a workload to its end; a second start with the same ``out`` continues the run.

    Args:
        bound: Bound workload.
        out: Output directory.
        results: Form of the results: a directory per query, or each pair once with its route.
        settings: Settings; the data directory in them is not used.
        strategy: Overrides the workload's strategy.
        jvm: Spark's JVM, if one was launched with the same settings already.
        final: Whether all streams end with this run. If so, outer, semi and anti joins decide about all rows
            whose window is bounded, and rows that arrive later are late.
        watch: Follows the progress of the run.
        tell: Called with each warning about inputs, perhaps several times with the same warning.

    Returns:
        Counts and rates.

    Raises:
        InvalidInput: The workload is invalid, or ``out`` belongs to another workload.
        EngineFailed: The Spark job failed; committed batches stay.
        FileRefused: A file is bad, and its stream has ``on_error: stop``.
    """
    started = time.monotonic()
    workload = bound.workload
    _refuse_caps(workload)
    calibration = data_dir_calibration(settings.storage)
    objective = objective_of(settings.planning).changed(
        strategy=strategy or workload.strategy,
        family_strategies=workload.family_strategies,
        partitioning=workload.partitioning,
        probe=workload.probe,
        oblivious_memory=workload.oblivious_memory,
        oblivious_memory_mb=workload.oblivious_memory_mb,
    )
    samples = SampleCache()
    if not (out / "_sluice").exists():
        rehearse(bound, objective, calibration, settings, samples)
    directory = run_data_dir(out, results, settings.storage.apart)
    settings = settings.for_data_dir(directory.root)
    store = open_catalog(directory, settings.storage.catalog_url)
    engine = Engine(settings, directory, store, bounded=True, jvm=jvm)
    try:
        engine.acquire()
        engine.launch()
        rows = settings.batches.first_rows
        statistician = Statistician(store, WorkloadRows(), settings.bucket_count, rows, samples)
        _set_up(bound, out, Versions(store, statistician, objective), calibration)
        _list(store, directory, tell)
        total_rows = _rows_there(store)
        with watch(lambda: _progress(store, total_rows)):
            engine.run()
            if final:
                _end_streams(store)
                engine.run()
        engine.stop()
        for stream, file in _left_out(store):
            tell(in_words(stream, file))
        _export(store, directory, out, results)
        return _summary(store, directory, time.monotonic() - started)
    finally:
        engine.close()
        store.close()


def _refuse_caps(workload: Workload) -> None:
    """Refuse state caps: each run may reach a cap at another row, so results would vary."""
    for i, stream in enumerate(workload.streams):
        if stream.state_cap_mb is not None:
            with workload.locating(("streams", i, "state_cap_mb")):
                raise InvalidStream(
                    "a run to the end of its input cannot have caps on the state",
                    detail="A run must give the same results every time, but a cap may be reached at "
                    "another row each time.",
                    hint="Leave state_cap_mb out; retain limits the windows on a stream.",
                )


def rehearse(
    bound: BoundWorkload,
    objective: Objective,
    calibration: Calibration,
    settings: Settings,
    samples: SampleCache,
) -> None:
    """Plan a workload's script on a temporary catalog, to refuse an invalid script before a run begins.

    Names, query texts and families were already checked when the file was read. Whether a migration names
    existing boundaries or an existing version depends on the plan versions before the migration. So all
    versions are made here, and then discarded.

    Args:
        bound: Bound workload.
        objective: Objective of its plans.
        calibration: Constants of this machine.
        settings: Settings of the run.
        samples: Cache that receives the samples, so that the run does not sample the inputs again.

    Raises:
        InvalidInput: A step of the script cannot be made; the error has the step's location in the file.
    """
    if all(step.migration is None for step in bound.workload.script):
        return
    with (
        tempfile.TemporaryDirectory(prefix="sluice-") as scratch,
        Store.open(f"sqlite:///{Path(scratch) / 'catalog.db'}") as store,
    ):
        rows = settings.batches.first_rows
        statistician = Statistician(store, WorkloadRows(), settings.bucket_count, rows, samples)
        _set_up(bound, Path(scratch), Versions(store, statistician, objective), calibration)


def _set_up(bound: BoundWorkload, out: Path, versions: Versions, calibration: Calibration) -> None:
    """Put streams, queries and script into the catalog, once, in one transaction."""
    workload, store, objective = bound.workload, versions.store, versions.base
    print_of_workload = hashlib.sha256(
        repr(
            (
                workload.streams,
                workload.queries,
                workload.script,
                objective.strategy,
                sorted(objective.family_strategies.items()),
                # Settings at their default are left out, so that a run can continue even if it was begun by a
                # version of Sluice without the setting.
                *([] if objective.partitioning == "auto" else [objective.partitioning]),
                *([] if objective.probe == "auto" else [objective.probe]),
                *([] if objective.oblivious_memory == "auto" else [objective.oblivious_memory]),
                *((s.name, s.punctuations, s.constraints) for s in workload.streams if s.has_contract),
                *((s.name, s.order) for s in workload.streams if s.order is not None),
                *((s.name, s.retain_us) for s in workload.streams if s.retain_us is not None),
            )
        ).encode()
    ).hexdigest()
    known = store.settings.get(WORKLOAD_SETTING)
    if known is not None:
        if known != print_of_workload:
            raise OtherWorkload(
                f'"{out}" contains the run of another workload',
                detail="A run can only be continued with the workload and the strategy that started it.",
                hint="Name a fresh directory with --out.",
            )
        return
    with store.transaction():
        for stream in workload.streams:
            if isinstance(stream.source, GeneratorSource):  # A generator starts now by default.
                stream = resolve_source(stream, base=out, now_us=wall_clock_us())
            store.streams.add(stream)
        script = _Script(bound, versions, calibration)
        first = [(AddQuery(q.name, q.cql, q.backfill), q.path) for q in workload.queries]
        if first:
            script.append("workload", 0, first)
        for at_batch in sorted({step.at_batch for step in workload.script}):
            steps = [step for step in workload.script if step.at_batch == at_batch]
            changes = [
                (change, step.path if step.query is None else step.query.path)
                for step in steps
                if (change := step.to_change()) is not None
            ]
            script.append(f"script at batch {at_batch}", at_batch, changes, steps)
        store.settings.set(WORKLOAD_SETTING, print_of_workload)


@dataclass(frozen=True, slots=True)
class _Script:
    """Puts a workload's changes into the catalog, one plan version per batch.

    Attributes:
        bound: Workload with the changes.
        versions: Plans and logs the versions.
        calibration: Constants of this machine.
    """

    bound: BoundWorkload
    versions: Versions
    calibration: Calibration

    def append(
        self,
        cause: str,
        at_batch: int,
        changes: Sequence[tuple[Change, ItemPath]],
        steps: Sequence[ScriptStep] = (),
    ) -> None:
        """Make the changes of a batch, one after the other, in one plan version.

        A request may change each query only once. In a script a query can also be removed and added again in
        one batch, in the order of the file: its first change is recorded before the second is resolved. The
        plan version contains the result of all changes.
        """
        store, version, workload = self.versions.store, self.versions.next, self.bound.workload
        previous = store.control_log.latest_plan()
        partitioning = self.versions.objective.partitioning
        resolver = Resolver(store, self.versions.statistician, partitioning=partitioning)
        resolver.reuse(self.bound.streams, self.bound.queries.values())
        resolver.refresh()
        steps_now: dict[str, ChangeStep] = {}
        for change, path in changes:
            name = change.name.lower()
            if name in steps_now:
                record_steps(store, tuple(steps_now.values()), version, previous)
                steps_now = {}
            with workload.locating(path, text_at=(*path, "cql")):
                steps_now[name] = resolver.resolve_one(change)
        record_steps(store, tuple(steps_now.values()), version, previous)
        queries = [record.query for record in store.queries.running()]
        left: ByFamily | None = None
        replanned: frozenset[str] = frozenset()
        for scripted in steps:
            if scripted.migration is None:
                continue
            with workload.locating((*scripted.path, "migrate")):
                wanted = resolve_migration(
                    scripted.migration, self.versions.objective, previous, queries, store
                )
            self.versions.objective = wanted.objective
            # A boundary that one migration of this batch drops is not restored by another migration.
            before = wanted.left if left is None else left
            left = {family: ends for family, ends in wanted.left.items() if family in before}
            replanned |= wanted.replanned
        with workload.locating(steps[0].path if steps else ("queries",)):
            self.versions.append(
                queries,
                previous,
                self.calibration,
                cause=cause,
                actor="script",
                at_batch=at_batch,
                replanned=replanned,
                left=left,
            )


def _rows_there(store: Store) -> int | None:
    """Return the number of rows of all streams, or None if the number of one stream is unknown."""
    total = 0
    for stream in store.streams.all():
        if isinstance(stream.source, FilesSource):
            position = 0
            while found := store.source_files.page(stream.id, position):
                total += sum(file.rows for file in found)
                position = found[-1].position + 1
        elif isinstance(stream.source, GeneratorSource) and stream.source.rows is not None:
            total += stream.source.rows
        else:
            return None
    return total


def _progress(store: Store, total_rows: int | None) -> RunProgress:
    totals = store.batches.totals()
    return RunProgress(totals.input_rows, totals.batches, total_rows)


def _list(store: Store, directory: DataDir, tell: Callable[[str], None]) -> None:
    """List the files of all streams, unless an earlier start has listed them; warn about bad files.

    Raises:
        FileRefused: A file is bad, and its stream has ``on_error: stop``; the file is not listed.
        UnreadableInput: A directory cannot be read.
    """

    def tell_of(stream: Stream, file: SourceFile) -> None:
        if file.verdict == "stops":
            raise FileRefused(stream.name, file.path, file.reason or "")
        tell(in_words(stream, file))

    for stream in store.streams.all():
        if isinstance(stream.source, FilesSource):
            if stream.on_error == "stop":  # The file that stopped an earlier start may have been corrected.
                store.source_files.retry(stream.id)
            try:
                wait_for_settled(stream.source)
                list_files(store, stream, settled=False, tell=tell_of, dead_letters=directory.dead_letters)
                warnings = source_warnings(stream, stream.source)
            except OSError as error:
                raise UnreadableInput(
                    f'files of stream "{stream.name}" cannot be read: {error}',
                    hint="Give the user of the command read access to the files, or name other files.",
                ) from error
            for warning in warnings:
                tell(warning)


def _left_out(store: Store) -> list[tuple[Stream, SourceFile]]:
    """Return the files that were set aside or have skipped rows."""
    files = store.source_files
    return [
        (stream, file)
        for stream in store.streams.all()
        for file in (*files.set_aside(stream.id), *files.with_skipped_rows(stream.id))
    ]


def _end_streams(store: Store) -> None:
    """Move every watermark so far past the last row that all windows and groups end."""
    plan = store.control_log.latest_plan()
    newest = [s.max_event_time_us for s in store.batches.stream_totals() if s.max_event_time_us is not None]
    if plan is None or not newest:
        return
    queries = [query for family in plan.families for query in family.queries]
    windows = [w for q in queries for w in (q.w_a_us, q.w_b_us) if w < UNBOUNDED_US]
    intervals = [q.grouping.width_us for q in queries if q.grouping is not None]
    end_us = min(max(newest) + max(windows, default=0) + max(intervals, default=0), MAX_TIME_US)
    with store.transaction():
        for stream in plan.streams:
            store.control_log.append(heartbeat=Heartbeat(stream.id, end_us))


def _export(store: Store, directory: DataDir, out: Path, results: ResultsForm) -> None:
    if results == "shared":
        export_shared(store, directory_here(directory.results), out)
        return
    by_name: dict[str, list[Query]] = {}
    for record in store.queries.all():
        queries = by_name.setdefault(record.query.name, [])
        if record.entered:
            queries.append(record.query)
    for name, queries in by_name.items():
        export_query(store, directory.results, name, queries, out)


def _summary(store: Store, directory: DataDir, seconds: float) -> RunSummary:
    totals = store.batches.totals()
    rows = store.counts.totals()
    last = store.batches.last_manifest()
    plan = store.control_log.latest_plan()
    by_name: dict[str, int] = {}
    for record in store.queries.all():
        by_name[record.query.name] = by_name.get(record.query.name, 0) + rows.get(record.query.id, 0)
    left_out = _left_out(store)
    skipped = tuple(
        FileWithBadRows(stream.name, file.path, file.skipped) for stream, file in left_out if file.skipped
    )
    return RunSummary(
        input_rows=totals.input_rows,
        late_rows=totals.late_rows,
        seconds=round(seconds, 3),
        rows_per_s=round(totals.input_rows / seconds, 1),
        batches=totals.batches,
        state_rows_peak=totals.state_rows_peak,
        state_bytes_peak=totals.state_bytes_peak,
        results=by_name,
        plan_version=0 if last is None else last.plan_version,
        strategy="mem-opt" if plan is None else plan.strategy,
        set_aside=tuple(
            FileSetAside(stream.name, file.path, file.reason or "")
            for stream, file in left_out
            if file.verdict != "ok"
        ),
        skipped=skipped,
        dead_letters=str(directory_here(directory.dead_letters)) if skipped else None,
    )
