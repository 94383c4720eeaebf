"""The table of queries and the page of one, in a browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.api.console.conftest import Running

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_query_is_paused_resumed_and_removed_with_the_mouse(page: Page, running: Running) -> None:
    running.add("short_lived", 2, 2)
    page.goto("/console/#/queries")
    row = page.get_by_role("row").filter(has_text="short_lived")
    expect(row).to_contain_text("running")

    row.get_by_role("button", name="Pause short_lived").click()
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="Resume short_lived").click()
    expect(row).to_contain_text("running")

    row.get_by_role("button", name="Remove short_lived").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(row).to_be_visible()
    row.get_by_role("button", name="Remove short_lived").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)


def test_queries_are_found_and_sorted(page: Page) -> None:
    page.goto("/console/#/queries")
    names = page.locator("tbody th")
    expect(names).to_have_text(["large", "paid"])

    page.get_by_role("button", name="Query").click()
    expect(names).to_have_text(["paid", "large"])
    page.keyboard.press("/")
    page.keyboard.type("total > 100")
    expect(names).to_have_text(["large"])
    expect(page.get_by_role("status").filter(has_text="1 of 2 queries")).to_be_visible()


def test_results_appear_as_they_come(page: Page, running: Running) -> None:
    page.goto("/console/#/queries/paid")
    expect(page.get_by_role("heading", name="paid")).to_be_visible()
    table = page.get_by_role("region", name="Live results")
    expect(table.get_by_role("row").nth(1)).to_be_visible()
    before = table.locator("tbody tr").first.text_content()

    running.post_pairs(30)
    expect(table.locator("tbody tr").first).not_to_have_text(before or "")
    page.get_by_role("button", name="Hold").click()
    expect(page.get_by_role("status").filter(has_text="Held")).to_be_visible()
    page.get_by_role("button", name="Go on").click()


def test_a_query_that_is_not_there_is_said_to_be_so(page: Page) -> None:
    page.goto("/console/#/queries/nothing")

    expect(page.get_by_role("alert").filter(has_text='query "nothing" does not exist')).to_be_visible()
