"""The plan as a picture, in a browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.api.console.conftest import Running

KEY = "o.id = p.order_id"

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_root_leads_to_a_picture_of_the_running_plan(page: Page) -> None:
    page.goto("/")

    expect(page).to_have_title("Plan – Sluice")
    expect(page.get_by_role("heading", name="orders.id = payments.order_id")).to_be_visible()
    expect(page.get_by_role("option", name="Slice 2, 10 min to 1 h")).to_have_count(1)
    expect(page.get_by_role("option", name="Slice 1, 0 s to 1 min")).to_have_count(1)
    expect(page.get_by_role("link", name="paid", exact=True)).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="engine running")).to_be_visible()
    # All posted rows are within slice 1, which keeps every row since "paid" has no filter.
    expect(page.get_by_label("Stream orders")).to_contain_text("200 rows")


def test_slices_are_as_wide_as_their_windows(page: Page) -> None:
    page.goto("/console/#/plan")
    first = page.get_by_role("listbox", name="Slices of orders").locator(".body").nth(0).bounding_box()
    second = page.get_by_role("listbox", name="Slices of orders").locator(".body").nth(1).bounding_box()

    assert first is not None
    assert second is not None
    assert second["width"] / first["width"] == pytest.approx(5, rel=0.05)


def test_a_query_lights_its_slices_and_a_slice_its_queries(page: Page) -> None:
    page.goto("/console/#/plan")
    orders = page.get_by_role("listbox", name="Slices of orders").locator(".slice")
    row = page.locator(".query-row")

    row.filter(has_text="paid").hover()
    expect(orders.nth(0)).to_have_class("slice lit")
    expect(orders.nth(1)).to_have_class("slice")
    expect(page.get_by_role("complementary")).to_contain_text("Window of orders10 min")

    orders.nth(1).hover()
    expect(row.filter(has_text="large")).to_have_class("lane query-row lit")
    expect(row.filter(has_text="paid")).to_have_class("lane query-row")
    expect(page.get_by_role("complementary")).to_contain_text("Kept on entryorders.total > 100")

    orders.nth(0).click()
    page.mouse.move(5, 5)
    expect(row.filter(has_text="paid")).to_have_class("lane query-row lit")
    page.keyboard.press("Escape")
    expect(row.filter(has_text="paid")).to_have_class("lane query-row")


def test_slices_are_reached_by_the_keyboard(page: Page) -> None:
    page.goto("/console/#/plan")
    chain = page.get_by_role("listbox", name="Slices of orders")
    chain.press("ArrowRight")
    chain.press("ArrowRight")
    active = chain.get_attribute("aria-activedescendant")

    expect(page.locator(f"#{active}")).to_have_attribute("aria-label", "Slice 2, 10 min to 1 h")
    chain.press("Enter")
    expect(page.locator(f"#{active}")).to_have_attribute("aria-selected", "true")


def test_queries_are_grouped_and_a_group_opens(page: Page) -> None:
    page.goto("/console/#/plan")
    page.get_by_label("Queries", exact=True).select_option("window")
    expect(page.locator(".query-row")).to_have_count(2)
    page.get_by_label("Axis").select_option("log")
    page.get_by_label("Queries", exact=True).select_option("filter")

    expect(page.get_by_role("link", name="large", exact=True)).to_be_visible()


def test_windows_of_rows_have_an_axis_of_rows(page: Page, running: Running) -> None:
    with running.also("latest", "o.id", f"FROM orders [ROWS 100] o, payments [RANGE 1 MINUTE] p WHERE {KEY}"):
        page.goto("/console/#/plan")
        family = page.locator("details.family").filter(has_text="orders by rows")

        expect(family.get_by_role("option", name="Slice 1, 0 to 100 rows")).to_have_count(1)
        expect(family.get_by_text("rows behind")).to_be_visible()
        expect(family.get_by_text("how far behind")).to_be_visible()


def test_a_query_over_three_streams_counts_once_and_names_each(page: Page, running: Running) -> None:
    streams = "FROM orders [RANGE 10 MINUTES] o, payments [RANGE 1 MINUTE] p, payments [RANGE 2 MINUTES] r"
    with running.also("thrice", "o.id", f"{streams} WHERE {KEY} AND p.order_id = r.order_id"):
        page.goto("/console/#/plan")
        expect(page.locator(".facts")).to_contain_text("Queries3")
        page.goto("/console/#/queries")
        row = page.get_by_role("row").filter(has_text="thrice")
        expect(row).to_contain_text("payments r:\u00a02min")
        page.goto("/console/#/queries/thrice")
        expect(page.get_by_text("Window of payments r")).to_be_visible()
