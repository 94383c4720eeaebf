"""Churn leaks nothing: after many adds and removes a service has what one has that never changed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from catalog.store.pruning import REPLAYED_BATCHES
from catalog.store.results import retention
from tests.service.churn import Figures, measure

#: Tables that say how much happened, not how much there is: one short record per change, the numbers given.
RECORDS = {"plan_history", "counters"}
#: A batch's manifest names the slices that it ran, also those of queries that have gone since.
MANIFESTS = "batches"
#: The last generation of routes began while others ran, whose routes it has, too; it has at most twice as
#: many as it began with, however many queries came and went.
ROUTES = "batch_routes"
MOST_ROUTES = 8.0
PART = 0.05
BATCHES = 30


def assert_alike(churned: Figures, fresh: Figures, part: float = PART) -> None:
    """Assert that nothing of the churned service is more than ``part`` above the fresh one."""
    for name, rows in fresh.rows.items():
        if name not in RECORDS:
            assert churned.rows[name] <= rows * (1 + part), f"rows of {name}"
            if name != MANIFESTS:
                factor = MOST_ROUTES if name == ROUTES else 1 + part
                assert churned.text_bytes[name] <= fresh.text_bytes[name] * factor, f"bytes of {name}"
    for figure in ("state_bytes", "manifest_bytes", "plan_bytes", "segments", "filters", "words", "terms"):
        assert getattr(churned, figure) <= getattr(fresh, figure) * (1 + part), figure


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    """What a service has whose queries never changed."""
    return measure(0, BATCHES, tmp_path_factory.mktemp("fresh"))


def test_a_few_changes_leave_nothing(tmp_path: Path) -> None:
    fresh, churned = (measure(changes, 10, made(tmp_path / str(changes))) for changes in (0, 12))
    assert_alike(churned, fresh)
    assert churned.results == fresh.results
    assert all(fresh.results.values())


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("changes", [30, 150])
def test_changes_leave_nothing(changes: int, tmp_path: Path, fresh: Figures) -> None:
    churned = measure(changes, BATCHES, tmp_path)
    assert_alike(churned, fresh)
    assert churned.results == fresh.results
    assert all(fresh.results.values())
    assert fresh.rows["control_log"] == fresh.rows["plans"] == 1


@pytest.mark.slow
def test_what_leads_to_kept_results_is_all_that_stays(tmp_path: Path, fresh: Figures) -> None:
    churned = measure(60, BATCHES, tmp_path, give_results=True)
    assert churned.results == fresh.results
    assert churned.rows["control_log"] == churned.rows["plans"] == 1
    gone = churned.rows["queries"] - fresh.rows["queries"]
    assert gone == churned.rows["query_totals"] - fresh.rows["query_totals"] > 0
    for figure in ("state_bytes", "segments", "filters", "words", "terms"):
        assert getattr(churned, figure) <= getattr(fresh, figure) * (1 + PART), figure


@pytest.mark.slow
def test_once_results_are_dropped_nothing_stays_of_queries_that_had_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "KEPT_BATCHES", REPLAYED_BATCHES + 2)
    found = []
    for changes in (60, 0):
        directory = tmp_path / str(changes)
        directory.mkdir()
        found.append(measure(changes, BATCHES, directory, give_results=True, keep=REPLAYED_BATCHES + 4))
    churned, fresh = found
    assert_alike(churned, fresh)
    assert churned.results == fresh.results
    assert fresh.rows["batches"] == REPLAYED_BATCHES + 4 + 1, "and the first of all"


@pytest.mark.slow
def test_five_thousand_changes_leave_nothing_in_memory_either() -> None:
    found = []
    for changes in (5000, 0):
        command = [sys.executable, "-m", "tests.service.churn", f"--changes={changes}", "--batches=250"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
        found.append(Figures(**json.loads(answer.stdout)))
    churned, fresh = found
    assert_alike(churned, fresh)
    assert churned.rss_bytes <= fresh.rss_bytes * (1 + PART)
    assert churned.results == fresh.results
