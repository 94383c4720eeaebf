"""Engine and savings in a browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.api.console.conftest import Running

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_batches_are_answered_oldest_first_with_their_parts(running: Running) -> None:
    items = running.ok("GET", "/engine/batches?limit=3", 200)["items"]

    last = running.ok("GET", "/engine", 200)["batch"]
    assert [item["batch"] for item in items] == list(range(items[0]["batch"], items[0]["batch"] + len(items)))
    assert items[-1]["batch"] >= last
    assert 1 <= len(items) <= 3
    for item in items:
        assert item["seconds"] > 0
        assert item["pack_cpu_s"] >= 0
        assert item["buckets"] == 2
        assert item["started_at"] < item["committed_at"]
    every = running.ok("GET", "/engine/batches?limit=200", 200)["items"]
    assert sum(item["rows"] for item in every) == running.ok("GET", "/statistics", 200)["input_rows"]


def test_batches_are_shown_and_the_engine_is_paused_resumed_and_restarted(
    page: Page, running: Running
) -> None:
    page.goto("/console/#/engine")
    expect(page.get_by_role("img", name="Duration of the last")).to_be_visible()
    expect(page.get_by_role("region", name="The last batches").locator("tbody tr").first).to_be_visible()
    expect(page.get_by_text("2 buckets share the work")).to_be_visible()

    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status").filter(has_text="engine paused")).to_be_visible()
    expect(page.get_by_text("Somebody paused it")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status").filter(has_text="engine running")).to_be_visible()

    run = running.ok("GET", "/engine", 200)["run_id"]
    page.get_by_role("button", name="Restart").click()
    page.get_by_role("dialog").get_by_role("button", name="Restart").click()
    expect(page.get_by_text(run)).to_have_count(0)
    expect(page.get_by_role("status").filter(has_text="engine running")).to_be_visible()


def test_a_batch_that_does_not_fail_is_not_skipped(page: Page) -> None:
    page.goto("/console/#/engine")
    page.get_by_role("button", name="Skip the failing batch").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Skip the failing batch").click()
    page.get_by_role("dialog").get_by_role("button", name="Skip").click()

    expect(page.get_by_role("alert").filter(has_text="no batch")).to_be_visible()


def test_one_click_goes_back_to_an_earlier_version(page: Page, running: Running) -> None:
    version = running.ok("GET", "/plan", 200)["version"]
    running.ok("POST", "/migrations?wait=60", 200, json={"strategy": "pullup"})
    page.goto("/console/#/engine")
    newest = page.get_by_role("region", name="Table of migrations").locator("tbody tr").first
    expect(newest).to_contain_text("pullup")

    page.get_by_role("button", name=f"Go back to version {version}", exact=True).click()
    expect(newest).to_contain_text(f"rollback to {version}")
    expect(newest).to_contain_text("active")
    assert running.ok("GET", "/plan", 200)["strategy"] == "mem-opt"
    newest.get_by_text("step").first.click()
    expect(newest.get_by_role("list")).to_contain_text("split")


def test_savings_compare_the_plan_with_what_is_not_shared(page: Page, running: Running) -> None:
    page.goto("/console/#/savings")
    sums = page.get_by_role("region", name="Sums of all families")
    for plan in ("running plan (mem-opt)", "unshared", "pullup", "pushdown", "held now, measured"):
        expect(sums.get_by_role("rowheader", name=plan)).to_be_visible()
    expect(page.get_by_role("img", name="Rows held: shared")).to_be_visible()
    expect(page.get_by_role("region", name="Costs of strategies")).to_contain_text("mem-opt (chosen)")

    family = running.ok("GET", "/plan", 200)["families"][0]
    assert family["cost"]["memory_rows"] < family["costs"]["unshared"]["memory_rows"]
