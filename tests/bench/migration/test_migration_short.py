"""The migration benchmark at small sizes: that it runs and counts right; times are for a quiet machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from tests.bench.migration.__main__ import main
from tests.bench.migration.activation import activations
from tests.bench.migration.carrying import Carried, carried, scheduled, through_spark
from tests.bench.migration.changes import TURNS, steps
from tests.bench.migration.load import Load
from tests.bench.migration.report import write_report
from tests.bench.migration.service_under_load import loaded_service
from tests.bench.migration.throughput import ORDER, STANDING, alternate, standing_queries
from tests.bench.reports import read_figures, rounded
from tests.bench.worker import spread

#: 60,000 rows of state, three batches of them.
SMALL = Load().sized(longest_s=1.2, queries=8)
#: Batches between two changes.
GAP = 2


def kinds() -> list[str]:
    return [step.kind for step in steps(SMALL)][1:]


def test_every_kind_of_change_is_there() -> None:
    found = list(steps(SMALL))
    assert [step.plan.version for step in found] == list(range(1, len(found) + 1))
    assert {f"to {strategy}" for strategy in TURNS} < {step.kind for step in found}
    assert {"add", "add, backfill state", "remove", "split", "merge"} < {step.kind for step in found}


@pytest.mark.slow
@pytest.mark.spark
def test_every_batch_with_a_change_is_measured_in_the_job() -> None:
    # In a process of its own: an engine sets variables and the handler of SIGINT.
    (measured,) = spread(partial(through_spark, cores=2, gap=GAP), [SMALL], jobs=1)
    check(measured)


def check(measured: list[Carried]) -> None:
    found = pd.DataFrame(measured).set_index("kind")
    assert list(found.index) == kinds()
    assert (found["batch_s"] > 0).all()
    # Chunks are cut by number, not by rows: what is held varies by a batch.
    assert found.state_rows["to mem-opt"] == pytest.approx(SMALL.state_rows, rel=0.4)
    assert found.state_rows["to unshared"] > found.state_rows["to mem-opt"]
    assert found.slices["merge"] < found.slices["split"]


@pytest.mark.slow
@pytest.mark.spark
def test_changes_are_counted_in_a_running_service(tmp_path: Path) -> None:
    with loaded_service(tmp_path, SMALL, standing_queries(SMALL)) as loaded:
        activated = activations(loaded, SMALL, 6)
        stretches = alternate(loaded, SMALL, 4.0)
        running = loaded.service.ok("GET", "/queries?limit=1000", 200)["items"]
    assert [a["kind"] for a in activated] == [
        "add",
        "remove",
        "add, backfill state",
        "remove",
        "add",
        "remove",
    ]
    assert all(a["batches"] >= 1 for a in activated)
    assert tuple(s["kind"] for s in stretches) == ORDER
    assert all(s["rows"] > 0 and s["service_bytes"] > 0 and s["workers_bytes"] > 0 for s in stretches)
    assert all((s["changes"] > 0) == (s["kind"] == "changes") for s in stretches)
    going = [q for q in running if q["name"].startswith("going")]
    assert abs(len(going) - STANDING) <= 1


def test_the_report_is_written_of_all_parts(tmp_path: Path) -> None:
    changes, at, batches = scheduled(SMALL, GAP)
    batch_s = [1.0 + (number in at) for number in range(batches)]
    found = carried(SMALL, changes, at, batch_s, [7] * batches)
    stretch = {"kind": "rest", "seconds": 10.0, "rows": 1000, "batches": 10, "changes": 0, "versions": 12}
    stretch |= {"median_batch_s": 0.9, "median_request_s": 0.02, "service_bytes": 2e8, "workers_bytes": 1.3e9}
    changing = stretch | {"kind": "changes", "rows": 900, "changes": 30}
    activated = {"kind": "add", "request_s": 0.01, "active_s": 0.7}
    measured = {
        "carrying": [found] * 3,
        "activation": [activated | {"batches": batches} for batches in (1, 2, 3)],
        "throughput": [changing if kind == "changes" else stretch for kind in ORDER],
        "quick": True,
        "machine": "a machine",
    }
    text = write_report(tmp_path, measured)
    assert "| add | 3 | 1 | 1 | 1 | 10 | 10 | 0.70 | 0.70 |" in text
    assert "**10.0%** of the throughput at rest" in text
    assert "| 20 | 200 | 1,300 |" in text
    assert all(f"| {kind} | 2.00 | 1.00 | 1.00 | 2.00 | ✗ | 1.00 | 7 |" in text for kind in kinds())
    assert rounded(read_figures(tmp_path / "migration.json")) == rounded(measured)


@pytest.mark.bench
@pytest.mark.spark
@pytest.mark.timeout(7200)
def test_migration_at_full_size() -> None:
    main(part=None, out=Path("docs/bench"), quick=False, report_only=False, runs=3, minutes=10.0, cores=2)
