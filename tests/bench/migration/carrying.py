"""Time of the batch that carries a migration in the Spark job, compared with the batches beside it.

Every kind of change is made once, one plan version after another, each on top of the one before.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from catalog.store.store import Store
from catalog.values.plan import Plan, Strategy
from catalog.values.query import Backfill, Query
from catalog.values.statistics import FamilyProfile, FilterProfile, Measure, Profile, StreamProfile
from planner.build.build_plan import build_plan
from planner.build.check_plan import check_plan
from planner.build.objective import Objective
from planner.explain.explicit_chain import explicit_chain
from planner.families.families import side_chain
from service.config.data_dir import open_data_dir
from service.config.settings import load_settings
from service.engine.engine import Engine
from tests.bench.migration.load import Load
from tests.pipeline import Pipeline, Ran, generated

#: Strategies in turn; each is left for the next, the last for the first.
TURNS: tuple[Strategy, ...] = ("cpu-opt", "pullup", "pushdown", "unshared", "mem-opt")


class Step(NamedTuple):
    """A plan version and what was changed."""

    kind: str
    plan: Plan


def steps(load: Load, batches: int = 1) -> list[Step]:
    """Return the first plan and then every kind of change once, each on top of the one before.

    Args:
        load: The load.
        batches: Batches of rows that the plans' streams bring.
    """
    streams = {s.id: s for s in load.streams(batches).values()}
    profile = profile_of(load)
    found = [Step("first", build_plan(load.bound_queries, streams))]

    def then(kind: str, *further: Query, strategy: Strategy = "mem-opt") -> None:
        queries, objective = (*load.bound_queries, *further), Objective(strategy)
        plan = build_plan(queries, streams, found[-1].plan, objective=objective, profile=profile)
        found.append(Step(kind, plan))

    middle_s, longer_s = load.longest_s * 0.33, load.longest_s * 1.2
    coming: list[tuple[str, str, str, Backfill]] = [
        ("add", "remove", load.text(middle_s, {"A": 0.15}), "none"),
        (
            *("add, backfill state", "remove, after backfill"),
            *(load.text(middle_s, {"A": 0.25, "B": 0.15}), "state"),
        ),
        ("add the longest window", "remove the longest window", load.text(longer_s, {"A": 0.1}), "none"),
    ]
    for comes, goes, text, backfill in coming:
        then(comes, load.bound(text, load.queries + 1, backfill))
        then(goes)
    for kind in ("merge", "split"):
        found.append(Step(kind, cut_by_hand(found[-1].plan, merged=kind == "merge")))
    for strategy in TURNS:
        then(f"to {strategy}", strategy=strategy)
    return found


def cut_by_hand(plan: Plan, *, merged: bool) -> Plan:
    """Return the next version with every second boundary of the one family's chain gone, or all back."""
    (family,) = plan.families
    windows = {s: sorted({q.w_a_us if s == "a" else q.w_b_us for q in family.queries}) for s in ("a", "b")}
    ends = {
        side: [
            *[at for n, at in enumerate(windows[side][:-1]) if not merged or n % 2],
            side_chain(family.joins[0], side)[-1].w_end_us,
        ]
        for side in ("a", "b")
    }
    joins = explicit_chain(family, ends["a"], ends["b"])
    following = replace(
        plan, version=plan.version + 1, families=(replace(family, joins=joins, given=merged),)
    )
    check_plan(following, plan)
    return following


def profile_of(load: Load) -> Profile:
    """Return the statistics of a load, which are known since it was made so."""
    filters = {
        (side.stream_id, side.filter): float(side.filter.rpartition(" ")[2])
        for query in load.bound_queries
        for side in (query.a, query.b)
        if side.filter is not None
    }
    (family,) = build_plan(load.bound_queries, {s.id: s for s in load.streams(1).values()}).families
    return Profile(
        streams=tuple(StreamProfile(n, Measure(load.rate_per_s), Measure(48.0)) for n in (1, 2)),
        filters=tuple(FilterProfile(s, sql, Measure(x)) for (s, sql), x in sorted(filters.items())),
        families=(FamilyProfile(family.id, Measure(1.0 / load.keys)),),
        batch_s=Measure(load.batch_s),
        buckets=2,
    )


#: Batches between two changes: enough for a median, and for what a migration leaves behind to show.
GAP = 6


def run_batch(pipeline: Pipeline, load: Load, plan: Plan | None = None) -> Ran:
    """Run the next batch of a load, under another plan if it is given."""
    pieces = [generated(stream, pipeline.batch, load.batch_s) for stream in pipeline.plan.streams]
    return pipeline.step(pieces, plan)


def scheduled(load: Load, gap: int) -> tuple[list[Step], list[int], int]:
    """Return the changes, the batch of each (the first plan comes in batch 0), and the number of batches."""
    count = len(steps(load))
    at = [0, *(load.batches_to_fill + gap + turn * (gap + 1) for turn in range(count - 1))]
    batches = at[-1] + 1 + gap
    return steps(load, batches), at, batches


def through_spark(load: Load, cores: int, gap: int = GAP) -> list[dict[str, Any]]:
    """Run all changes in one Spark job, scripted so that no planning runs beside it."""
    changes, at, batches = scheduled(load, gap)
    with tempfile.TemporaryDirectory(prefix="sluice-migration-") as root:
        directory = open_data_dir(Path(root))
        settings = load_settings(
            data_dir=Path(root),
            cores=cores,
            buckets=cores,
            max_rows_per_batch=load.max_rows_per_batch,
            target_batch_s=0,
        )
        with Store.open(directory.catalog_url) as store:
            engine = Engine(settings, directory, store, bounded=True)
            engine.acquire()
            try:
                for stream in load.streams(batches).values():
                    store.streams.add(stream)
                with store.transaction():
                    for step, number in zip(changes, at, strict=True):
                        store.control_log.append(plan=step.plan, at_batch=number)
                engine.run()
                engine.stop()
                manifests = store.batches.manifests(0, batches)
            finally:
                engine.close()
    # From commit to commit; the first batch, which starts Spark's workers, is not looked at.
    batch_s = np.diff([m.committed_at_us / 1e6 for m in manifests], prepend=0.0).tolist()
    return carried(load, changes, at, batch_s, [m.state_rows for m in manifests])


def carried(
    load: Load, changes: Sequence[Step], at: Sequence[int], batch_s: Sequence[float], rows: Sequence[int]
) -> list[dict[str, Any]]:
    """Sum up the batches that carried a change.

    Of each ``kind`` of change: what its batch took; the medians of the batches before it, back to the change
    before, and after it; the ``ratio`` to the dearer of the two plans it stands between; what the next batch
    took; and the rows held and slices of all joins and both sides after it.

    Args:
        load: The load.
        changes: The first plan, then every change.
        at: Batch of each.
        batch_s: What every batch took.
        rows: Rows held after every batch.
    """
    starts = [load.batches_to_fill, *(number + 1 for number in at[1:])]
    ends = [*at[1:], len(batch_s)]
    medians = [statistics.median(batch_s[a:b]) for a, b in zip(starts, ends, strict=True)]
    return [
        {
            "kind": step.kind,
            "batch_s": batch_s[number],
            "before_s": before_s,
            "after_s": after_s,
            "ratio": batch_s[number] / max(before_s, after_s),
            "next_s": batch_s[number + 1],
            "state_rows": rows[number],
            "slices": sum(len(j.chain_a) + len(j.chain_b) for f in step.plan.families for j in f.joins),
        }
        for step, number, before_s, after_s in zip(changes[1:], at[1:], medians, medians[1:], strict=False)
    ]
