"""``sluice run``: a workload over everything available, to the end, with the same engine that serves.

Everything a run needs to go on after a crash is in ``DIR/_sluice``: the streams, queries and the whole
script are in the catalog before the first batch, scripted changes as control records that wait for their
batch.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from catalog.errors import InvalidInput
from catalog.store import Store
from catalog.values.calibration import Calibration
from catalog.values.plan import Plan, Strategy
from catalog.values.query import Query
from catalog.values.statistics import Profile
from catalog.values.stream import FilesSource
from planner.bind import bind
from planner.build_plan import build_plan
from service.calibration import data_dir_calibration
from service.data_dir import DataDir, open_data_dir
from service.engine import Engine
from service.export import export_query, export_shared
from service.inputs.files import list_files
from service.inputs.sample import WorkloadRows
from service.objective import Objective
from service.preview import Statistician
from service.settings import Settings
from service.workload import Workload, WorkloadQuery
from service.yaml_document import ItemPath

ResultsForm = Literal["per-query", "shared"]

WORKLOAD_SETTING = "workload"


class OtherWorkload(InvalidInput):
    """The output directory belongs to another workload."""

    code = "other-workload"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run gave.

    Attributes:
        input_rows: Rows read, late ones included.
        late_rows: Rows dropped as late.
        seconds: Wall time of this start, from first to last line.
        rows_per_s: Input rows per second of ``seconds``.
        batches: Micro-batches committed.
        state_rows_peak: Most rows held at the end of a batch.
        state_bytes_peak: Most encoded bytes held at the end of a batch.
        results: Result rows per query.
        plan_version: Plan version of the last batch.
        strategy: Strategy of families without one of their own, under the last plan version.
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


def run_workload(
    workload: Workload,
    out: Path,
    *,
    results: ResultsForm,
    buckets: int | None,
    settings: Settings,
    strategy: Strategy | None = None,
) -> RunSummary:
    """Run a workload to its end; started again with the same ``out`` it continues.

    Args:
        workload: Checked workload.
        out: Output directory.
        results: A directory per query, or each pair once with its route.
        buckets: Buckets of a fresh run; None takes the setting.
        settings: Settings; their data directory is not used.
        strategy: Rules over the workload's strategy.

    Returns:
        Counts and rates.

    Raises:
        InvalidInput: The workload cannot be meant, or ``out`` belongs to another one.
        EngineFailed: The Spark job failed; what was committed stays.
    """
    started = time.monotonic()
    calibration = data_dir_calibration(settings)
    directory = open_data_dir(out / "_sluice", results_dir=out / "results" if results == "shared" else None)
    settings = settings.model_copy(update={"data_dir": directory.root, "buckets": buckets})
    store = Store.open(settings.catalog_url or directory.catalog_url)
    engine = Engine(settings, directory, store, bounded=True)
    engine.acquire()
    try:
        objective = Objective.of_settings(settings).changed(
            strategy=strategy or workload.strategy, family_strategies=workload.family_strategies
        )
        rows = settings.max_rows_per_batch
        statistician = Statistician(store, WorkloadRows(), settings.bucket_count, rows)
        _set_up(workload, out, _Versions(store, statistician, calibration, objective))
        for stream in store.streams():
            if isinstance(stream.source, FilesSource):
                list_files(store, stream)
        engine.run()
        engine.stop()
        _export(store, directory, out, results)
        return _summary(store, time.monotonic() - started)
    finally:
        engine.close()
        store.close()


def _set_up(workload: Workload, out: Path, versions: _Versions) -> None:
    """Put streams, queries and script into the catalog, once and as one."""
    store, objective = versions.store, versions.objective
    print_of_workload = hashlib.sha256(
        repr(
            (
                workload.streams,
                workload.queries,
                workload.script,
                objective.strategy,
                sorted(objective.family_strategies.items()),
            )
        ).encode()
    ).hexdigest()
    known = store.setting(WORKLOAD_SETTING)
    if known is not None:
        if known != print_of_workload:
            raise OtherWorkload(
                f'"{out}" holds the run of another workload',
                detail="A run continues only with the workload and strategy it was started with.",
                hint="Name a fresh directory with --out.",
            )
        return
    with store.transaction():
        streams = {s.name: s for s in (store.add_stream(stream) for stream in workload.streams)}
        running: dict[str, Query] = {}

        def add(entry: WorkloadQuery, path: ItemPath, version: int) -> None:
            with workload.locating(path, text_at=(*path, "cql")):
                bound = bind(
                    entry.cql,
                    streams,
                    name=entry.name,
                    query_id=store.reserve_query_id(),
                    backfill=entry.backfill,
                )
            running[entry.name] = bound
            store.add_query(bound, version)

        for entry in workload.queries:
            add(entry, entry.path, 1)
        if running:
            versions.append(tuple(running.values()), at_batch=0)
        steps = sorted(workload.script, key=lambda step: step.at_batch)
        for at_batch in sorted({step.at_batch for step in steps}):
            version = versions.next
            for step in steps:
                if step.at_batch != at_batch:
                    continue
                if step.query is not None:
                    add(step.query, step.query.path, version)
                elif step.action == "remove":
                    del running[step.name]
                    store.remove_query(step.name, version)
                else:
                    versions.objective = versions.objective.changed(
                        strategy=step.strategy, family_strategies=step.family_strategies
                    )
            versions.append(tuple(running.values()), at_batch=at_batch)
        store.set_setting(WORKLOAD_SETTING, print_of_workload)


@dataclass(slots=True)
class _Versions:
    """Plans one version after another.

    Attributes:
        store: Takes them.
        statistician: Finds what strategies weigh.
        calibration: Constants of this machine.
        objective: In force for the next version.
        plan: The last version.
    """

    store: Store
    statistician: Statistician
    calibration: Calibration
    objective: Objective
    plan: Plan | None = None

    @property
    def next(self) -> int:
        """Number of the next version."""
        return 1 if self.plan is None else self.plan.version + 1

    def append(self, queries: Sequence[Query], *, at_batch: int) -> None:
        """Plan the queries of the next version and log it for a batch."""
        weighs = self.objective.weighs_costs()
        self.plan = build_plan(
            queries,
            {s.id: s for s in self.store.streams()},
            self.plan,
            strategy=self.objective.strategy,
            family_strategies=self.objective.by_family(queries),
            profile=self.statistician.profile(queries) if weighs else Profile(),
            model=self.objective.models(self.calibration).deciding,
        )
        self.store.append_control(plan=self.plan, at_batch=at_batch)


def _export(store: Store, directory: DataDir, out: Path, results: ResultsForm) -> None:
    if results == "shared":
        export_shared(store, directory.results, out)
        return
    by_name: dict[str, list[Query]] = {}
    for record in store.all_queries():
        by_name.setdefault(record.query.name, []).append(record.query)
    for name, queries in by_name.items():
        export_query(store, directory.results, name, queries, out)


def _summary(store: Store, seconds: float) -> RunSummary:
    totals = store.totals()
    rows = store.query_totals()
    last = store.last_manifest()
    plan = store.latest_plan()
    by_name: dict[str, int] = {}
    for record in store.all_queries():
        by_name[record.query.name] = by_name.get(record.query.name, 0) + rows.get(record.query.id, 0)
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
    )
