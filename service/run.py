"""``sluice run``: a workload over everything available, to the end, with the same engine that serves.

Everything a run needs to go on after a crash is in ``DIR/_sluice``: the streams, queries and the whole
script are in the catalog before the first batch, scripted changes as control records that wait for their
batch.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from catalog.errors import InvalidInput
from catalog.store import Store
from catalog.values.plan import Plan
from catalog.values.query import Query
from catalog.values.stream import FilesSource
from planner.bind import bind
from planner.build_plan import build_plan
from service.data_dir import DataDir, open_data_dir
from service.engine import Engine
from service.export import export_query, export_shared
from service.inputs.files import list_files
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
        strategy: Objective that chose the chains.
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
    workload: Workload, out: Path, *, results: ResultsForm, buckets: int | None, settings: Settings
) -> RunSummary:
    """Run a workload to its end; started again with the same ``out`` it continues.

    Args:
        workload: Checked workload.
        out: Output directory.
        results: A directory per query, or each pair once with its route.
        buckets: Buckets of a fresh run; None takes the setting.
        settings: Settings; their data directory is not used.

    Returns:
        Counts and rates.

    Raises:
        InvalidInput: The workload cannot be meant, or ``out`` belongs to another one.
        EngineFailed: The Spark job failed; what was committed stays.
    """
    started = time.monotonic()
    directory = open_data_dir(out / "_sluice", results_dir=out / "results" if results == "shared" else None)
    settings = settings.model_copy(update={"data_dir": directory.root, "buckets": buckets})
    store = Store.open(settings.catalog_url or directory.catalog_url)
    engine = Engine(settings, directory, store, bounded=True)
    engine.acquire()
    try:
        _set_up(store, workload, out)
        for stream in store.streams():
            if isinstance(stream.source, FilesSource):
                list_files(store, stream)
        engine.run()
        engine.stop()
        _export(store, directory, out, results)
        return _summary(store, workload, time.monotonic() - started)
    finally:
        engine.close()
        store.close()


def _set_up(store: Store, workload: Workload, out: Path) -> None:
    """Put streams, queries and script into the catalog, once and as one."""
    print_of_workload = hashlib.sha256(
        repr((workload.streams, workload.queries, workload.script)).encode()
    ).hexdigest()
    known = store.setting(WORKLOAD_SETTING)
    if known is not None:
        if known != print_of_workload:
            raise OtherWorkload(
                f'"{out}" holds the run of another workload',
                detail="A run continues only with the workload it was started with.",
                hint="Name a fresh directory with --out.",
            )
        return
    with store.transaction():
        streams = {s.name: s for s in (store.add_stream(stream) for stream in workload.streams)}
        by_id = {s.id: s for s in streams.values()}
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

        plan: Plan | None = None
        for entry in workload.queries:
            add(entry, entry.path, 1)
        if running:
            plan = build_plan(tuple(running.values()), by_id, None, strategy=workload.strategy)
            store.append_control(plan=plan, at_batch=0)
        steps = sorted(workload.script, key=lambda step: step.at_batch)
        for at_batch in sorted({step.at_batch for step in steps}):
            version = 1 if plan is None else plan.version + 1
            for step in steps:
                if step.at_batch == at_batch and step.action == "remove":
                    del running[step.name]
                    store.remove_query(step.name, version)
                elif step.at_batch == at_batch and step.query is not None:
                    add(step.query, step.query.path, version)
            plan = build_plan(tuple(running.values()), by_id, plan, strategy=workload.strategy)
            store.append_control(plan=plan, at_batch=at_batch)
        store.set_setting(WORKLOAD_SETTING, print_of_workload)


def _export(store: Store, directory: DataDir, out: Path, results: ResultsForm) -> None:
    if results == "shared":
        export_shared(store, directory.results, out)
        return
    by_name: dict[str, list[Query]] = {}
    for record in store.all_queries():
        by_name.setdefault(record.query.name, []).append(record.query)
    for name, queries in by_name.items():
        export_query(store, directory.results, name, queries, out)


def _summary(store: Store, workload: Workload, seconds: float) -> RunSummary:
    totals = store.totals()
    rows = store.query_totals()
    last = store.last_manifest()
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
        strategy=workload.strategy,
    )
