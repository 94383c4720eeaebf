"""The migration benchmark at small sizes: that it runs and counts right; times are for a quiet machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from tests.bench.migration.__main__ import main, tables
from tests.bench.migration.carrying import TURNS, carried, scheduled, steps, through_spark
from tests.bench.migration.load import Load
from tests.bench.migration.under_load import ORDER, STANDING, activations, alternate, changing_service
from tests.bench.options import DOCS
from tests.bench.worker import spread

#: 60,000 rows of state, three batches of them.
SMALL = Load().sized(longest_s=1.2, queries=8)


def test_every_kind_of_change_is_there_and_summed_up() -> None:
    changes, at, batches = scheduled(SMALL, gap=2)
    assert [step.plan.version for step in changes] == list(range(1, len(changes) + 1))
    kinds = [step.kind for step in changes]
    assert {*(f"to {turn}" for turn in TURNS), "add", "add, backfill state", "remove", "merge"} < {*kinds}
    batch_s = [1.0 + (number in at) for number in range(batches)]
    found = carried(SMALL, changes, at, batch_s, [7] * batches)
    assert [c["kind"] for c in found] == kinds[1:]
    assert {(c["batch_s"], c["before_s"], c["ratio"], c["next_s"]) for c in found} == {(2.0, 1.0, 2.0, 1.0)}


@pytest.mark.slow
@pytest.mark.spark
def test_every_batch_with_a_change_is_measured_in_the_job() -> None:
    # In a process of its own: an engine sets variables and the handler of SIGINT.
    (measured,) = spread(partial(through_spark, cores=2, gap=2), [SMALL], jobs=1)
    found = pd.DataFrame(measured).set_index("kind")
    assert list(found.index) == [step.kind for step in steps(SMALL)][1:]
    assert (found["batch_s"] > 0).all()
    # Chunks are cut by number, not by rows: what is held varies by a batch.
    assert found.state_rows["to mem-opt"] == pytest.approx(SMALL.state_rows, rel=0.4)
    assert found.state_rows["to unshared"] > found.state_rows["to mem-opt"]
    assert found.slices["merge"] < found.slices["split"]


@pytest.mark.slow
@pytest.mark.spark
def test_changes_are_counted_in_a_running_service(tmp_path: Path) -> None:
    with changing_service(tmp_path, SMALL) as loaded:
        measured = {"activation": activations(loaded, SMALL, 6), "throughput": alternate(loaded, SMALL, 4.0)}
        running = loaded.service.ok("GET", "/queries?limit=1000", 200)["items"]
    kinds = ["add", "remove", "add, backfill state", "remove", "add", "remove"]
    assert [a["kind"] for a in measured["activation"]] == kinds
    assert all(a["batches"] >= 1 for a in measured["activation"])
    stretches = measured["throughput"]
    assert tuple(s["kind"] for s in stretches) == ORDER
    assert all(s["rows"] > 0 and s["service_bytes"] > 0 and s["workers_bytes"] > 0 for s in stretches)
    assert all((s["changes"] > 0) == (s["kind"] == "changes") for s in stretches)
    assert abs(sum(q["name"].startswith("going") for q in running) - STANDING) <= 1
    assert "| changes |" in tables(measured)["throughput"]


@pytest.mark.bench
@pytest.mark.spark
@pytest.mark.timeout(7200)
def test_migration_at_full_size() -> None:
    main(out=DOCS)
