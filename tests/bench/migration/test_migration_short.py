"""The migration benchmark at small sizes: that it runs and counts right; times are for a quiet machine."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.bench.migration.__main__ import main
from tests.bench.migration.activation import Activated, activations
from tests.bench.migration.carrying import Carried, carried, scheduled, through_spark
from tests.bench.migration.changes import TURNS, steps
from tests.bench.migration.load import Load
from tests.bench.migration.report import write_report
from tests.bench.migration.service_under_load import loaded_service
from tests.bench.migration.throughput import ORDER, STANDING, Stretch, alternate, standing_queries
from tests.bench.reports import read_figures, rounded

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
    check(through_spark(SMALL, cores=2, gap=GAP))


def check(measured: list[Carried]) -> None:
    assert [c.kind for c in measured] == kinds()
    assert all(c.batch_s > 0 for c in measured)
    by_kind = {c.kind: c for c in measured}
    shared = SMALL.state_rows
    # Chunks are cut by number, not by rows: what is held varies by a batch.
    assert by_kind["to mem-opt"].state_rows == pytest.approx(shared, rel=0.4)
    assert by_kind["to unshared"].state_rows > by_kind["to mem-opt"].state_rows
    assert by_kind["merge"].slices < by_kind["split"].slices


@pytest.mark.slow
@pytest.mark.spark
def test_changes_are_counted_in_a_running_service(tmp_path: Path) -> None:
    with loaded_service(tmp_path, SMALL, standing_queries(SMALL)) as loaded:
        activated = activations(loaded, SMALL, 6)
        stretches = alternate(loaded, SMALL, 4.0)
        running = loaded.service.ok("GET", "/queries?limit=1000", 200)["items"]
    assert [a.kind for a in activated] == ["add", "remove", "add, backfill state", "remove", "add", "remove"]
    assert all(a.batches >= 1 for a in activated)
    assert tuple(s.kind for s in stretches) == ORDER
    assert all(s.rows > 0 and s.service_bytes > 0 and s.workers_bytes > 0 for s in stretches)
    assert all((s.changes > 0) == (s.kind == "changes") for s in stretches)
    going = [q for q in running if q["name"].startswith("going")]
    assert abs(len(going) - STANDING) <= 1


def test_the_report_is_written_of_all_parts(tmp_path: Path) -> None:
    changes, at, batches = scheduled(SMALL, GAP)
    batch_s = [1.0 + (number in at) for number in range(batches)]
    found = carried(SMALL, changes, at, batch_s, [7] * batches)
    stretch = Stretch("rest", 10.0, 1000, 10, 0, 12, 0.9, 0.02, 0.0, 200_000_000, 1_300_000_000)
    changing = replace(stretch, kind="changes", rows=900, changes=30)
    measured = {
        "carrying": [[asdict(c) for c in found]] * 3,
        "activation": [
            asdict(Activated(k, n, 0.01, 0.7)) for k, n in (("add", 1), ("remove", 2), ("add", 3))
        ],
        "throughput": [asdict(changing if kind == "changes" else stretch) for kind in ORDER],
        "quick": True,
        "machine": "a machine",
    }
    text = write_report(tmp_path, measured)
    assert "| add | 2 | 1 | 0 | 1 | 10 | 10 | 0.70 | 0.70 |" in text
    assert "**10.0%** of the throughput at rest" in text
    assert "| 20 | 200 | 1,300 |" in text
    assert all(f"| {kind} | 2.00 | 1.00 | 1.00 | 2.00 | ✗ | 1.00 | 7 |" in text for kind in kinds())
    assert rounded(read_figures(tmp_path / "migration.json")) == rounded(measured)


@pytest.mark.bench
@pytest.mark.spark
@pytest.mark.timeout(7200)
def test_migration_at_full_size() -> None:
    main(part=None, out=Path("docs/bench"), quick=False, report_only=False, runs=3, minutes=10.0, cores=2)
