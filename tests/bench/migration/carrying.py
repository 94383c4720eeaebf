"""Time of the batch that carries a migration in the Spark job, compared with the batches beside it."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from catalog.store.store import Store
from catalog.values.plan import Plan
from service.config.data_dir import open_data_dir
from service.config.settings import load_settings
from service.engine.engine import Engine
from tests.bench.migration.changes import Step, steps
from tests.bench.migration.load import Load
from tests.pipeline import Pipeline, Ran, generated

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
