"""The editor and what a change would do, in a browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.api.console.conftest import JOIN, Running

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_query_is_added_by_mouse_after_a_look_at_its_effect(page: Page, running: Running) -> None:
    page.goto("/console/#/queries")
    page.get_by_role("link", name="Add a query").click()
    page.get_by_label("Name").fill("by_mouse")
    page.get_by_label("Query in CQL").fill(f"SELECT o.id {JOIN.format(25, 1)}")

    expect(page.get_by_text("The query can run")).to_be_visible()
    effect = page.get_by_role("region", name="Effect")
    expect(effect.get_by_role("list").filter(has_text="split orders at 25m")).to_be_visible()
    then = effect.get_by_role("listbox", name="orders then").get_by_role("option")
    expect(then).to_have_count(3)
    for strategy in ("unshared", "pullup", "pushdown", "mem-opt", "cpu-opt"):
        expect(effect.get_by_role("rowheader", name=strategy)).to_be_visible()
    assert {q["name"] for q in running.ok("GET", "/queries", 200)["items"]} == {"large", "paid"}

    page.get_by_role("button", name="Add the query").click()
    expect(page.get_by_text("by_mouse runs")).to_be_visible()
    page.get_by_role("link", name="See its results").click()
    expect(page.get_by_role("heading", name="by_mouse")).to_be_visible()

    page.get_by_role("link", name="Edit").click()
    editor = page.get_by_label("Query in CQL")
    expect(editor).to_have_value(f"SELECT o.id {JOIN.format(25, 1)}")
    editor.fill(f"SELECT o.id {JOIN.format(30, 1)}")
    expect(effect.get_by_role("list").filter(has_text="split orders at 30m")).to_be_visible()
    page.get_by_role("button", name="Change the query").click()
    expect(page.get_by_text("by_mouse runs")).to_be_visible()
    assert running.ok("GET", "/queries/by_mouse", 200)["a"]["window"] == "30min"
    running.ok("DELETE", "/queries/by_mouse?wait=60", 200)


def test_a_fault_is_marked_where_it_is_and_the_caret_goes_there(page: Page) -> None:
    page.goto("/console/#/whatif")
    editor = page.get_by_label("Query in CQL")
    editor.fill(f"SELECT o.totl\n{JOIN.format(10, 1)}")

    expect(page.get_by_text('column "totl" does not exist in stream "orders"')).to_be_visible()
    expect(page.get_by_text('Did you mean "total"?')).to_be_visible()
    expect(page.locator(".behind mark")).to_have_text("totl")
    expect(page.get_by_role("button", name="Add the query")).to_be_disabled()
    page.get_by_role("button", name="Go to line 1, column 10").click()
    page.keyboard.type("total")
    expect(editor).to_have_value(f"SELECT o.total\n{JOIN.format(10, 1)}")
    expect(page.get_by_text("The query can run")).to_be_visible()


def test_streams_and_columns_are_completed(page: Page) -> None:
    page.goto("/console/#/whatif")
    page.get_by_text("Streams and their columns").click()
    expect(page.get_by_text("order_id bigint")).to_be_visible()
    editor = page.get_by_label("Query in CQL")
    editor.fill("SELECT o.id FROM orders [RANGE 1 MINUTE] o, ")
    editor.press("End")
    page.keyboard.type("pay")
    expect(page.get_by_role("option", name="payments stream")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.type(" [RANGE 1 MINUTE] p WHERE o.id = p.ord")
    page.get_by_role("option", name="order_id bigint").click()

    expect(editor).to_have_value(
        "SELECT o.id FROM orders [RANGE 1 MINUTE] o, payments [RANGE 1 MINUTE] p WHERE o.id = p.order_id"
    )
    expect(page.get_by_text("The query can run")).to_be_visible()
    page.keyboard.press("Control+z")
    expect(editor).to_have_value(re.compile(r"o\.id = p\.(ord)?$"))


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        (["payments [NOW] p", "Enter", "WHERE"], "payments [NOW] p\nWHERE"),
        (["payments [NOW] AS p", "Enter", "WHERE"], "payments [NOW] AS p\nWHERE"),
        (["SELECT o", "Enter", "FROM"], "SELECT o\nFROM"),
        (["SELECT o", "ArrowDown", "Enter"], "SELECT orders"),
        (["SELECT o", "ArrowDown", "ArrowDown", "Enter"], "SELECT OR"),
        (["SELECT o", "Tab"], "SELECT orders"),
        (["SELECT o", "Escape", "Enter", "x"], "SELECT o\nx"),
        (["SELECT o", "ArrowLeft", "Enter", "x"], "SELECT \nxo"),
        (["SELECT o", "Control+Space", "Enter"], "SELECT orders"),
    ],
)
def test_enter_begins_a_line_unless_a_completion_was_chosen(page: Page, typed: list[str], taken: str) -> None:
    page.goto("/console/#/whatif")
    page.get_by_text("Streams and their columns").click()
    expect(page.get_by_text("order_id bigint")).to_be_visible()
    editor = page.get_by_label("Query in CQL")
    editor.focus()
    for each in typed:
        if re.fullmatch(r"Enter|Tab|Escape|Arrow\w+|Control\+\w+", each):
            page.keyboard.press(each)
        else:
            page.keyboard.type(each)

    expect(editor).to_have_value(taken)


def test_a_fault_is_marked_in_lines_that_wrap_and_after_characters_beyond_16_bits(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/console/#/whatif")
    editor = page.get_by_label("Query in CQL")
    wide = " OR ".join(f"o.total = {n}" for n in range(40))
    editor.fill(f"SELECT '\N{CHICKEN}' AS hen, o.totl {JOIN.format(10, 1)} AND ({wide})")

    expect(page.locator(".behind mark")).to_have_text("totl")
    expect(page.locator(".verdict mark")).to_have_text("totl")
    layouts = page.evaluate(
        """() => [".stack textarea", ".behind"].map((name) => {
          const { scrollHeight, clientWidth } = document.querySelector(name);
          const style = getComputedStyle(document.querySelector(name));
          return [clientWidth, scrollHeight, style.fontSize, style.scrollbarGutter].join();
        })"""
    )
    assert layouts[0] == layouts[1]
    page.get_by_role("button", name="Go to line 1").click()
    page.keyboard.type("total")
    expect(page.get_by_text("The query can run")).to_be_visible()


def test_a_name_that_is_taken_is_refused_in_words(page: Page) -> None:
    page.goto("/console/#/whatif")
    page.get_by_label("Name").fill("paid")
    page.get_by_label("Query in CQL").fill(f"SELECT o.id {JOIN.format(25, 1)}")

    expect(page.get_by_text('query "paid"')).to_be_visible()
    expect(page.get_by_role("button", name="Add the query")).to_be_disabled()


def test_a_strategy_is_previewed_and_migrated_to(page: Page, running: Running) -> None:
    page.goto("/console/#/whatif")
    effect = page.get_by_role("region", name="Effect")
    page.get_by_label("Strategy of all families").select_option("pullup")
    expect(effect.get_by_role("listbox", name="orders then").get_by_role("option")).to_have_count(1)

    page.get_by_role("button", name="Migrate to this strategy").click()
    told = page.get_by_role("status").filter(has_text=re.compile(r"Migration \d+ is active"))
    expect(told).to_be_visible()
    assert running.ok("GET", "/plan", 200)["strategy"] == "pullup"
    page.get_by_label("Strategy of all families").select_option("mem-opt")
    expect(told).to_have_count(0)
    page.get_by_role("button", name="Migrate to this strategy").click()
    expect(told).to_be_visible()
    assert running.ok("GET", "/plan", 200)["strategy"] == "mem-opt"
