"""What holds of every screen: axe finds nothing, dark and light, and 360 px are wide enough."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.api.console.conftest import JOIN, Running

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: WCAG 2.2 AA, and what axe calls best practice.
_RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}

SCREENS = {
    "plan": "Stream orders",
    "queries": "Table of queries",
    "queries/paid": "Live results",
    "whatif": "Effect",
    "streams": "Stream orders",
    "savings": "Sums of all families",
    "engine": "The last batches",
}


def opened(page: Page, screen: str) -> None:
    page.goto(f"/console/#/{screen}")
    expect(page.get_by_role("region", name=SCREENS[screen])).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="engine running")).to_be_visible()
    if screen == "whatif":
        page.get_by_label("Query in CQL").fill(f"SELECT o.totl {JOIN.format(25, 1)}")
        expect(page.get_by_role("button", name="Go to line 1")).to_be_visible()
        page.get_by_label("Query in CQL").fill(f"SELECT o.id {JOIN.format(25, 1)}")
        expect(page.get_by_role("rowheader", name="pushdown")).to_be_visible()


def violations(page: Page) -> list[str]:
    found = Axe().run(page, options=_RULES).response["violations"]
    return [f"{v['id']}: {v['help']}: {[n['html'][:160] for n in v['nodes'][:3]]}" for v in found]


@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing_in_light_and_dark(page: Page, screen: str) -> None:
    opened(page, screen)
    page.mouse.move(0, 0)
    assert page.locator("html").get_attribute("data-theme") == "light"
    assert violations(page) == []

    page.get_by_role("button", name="Switch between dark and light").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert violations(page) == []


@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_fits_into_360_pixels(page: Page, screen: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    opened(page, screen)

    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert violations(page) == []


def test_the_theme_of_the_system_is_taken_until_somebody_chooses(browser: Browser, running: Running) -> None:
    context = browser.new_context(base_url=running.root, color_scheme="dark")
    page = context.new_page()
    page.goto("/console/")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.get_by_role("button", name="Switch between dark and light").click()
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "light"
    context.close()


def test_screens_have_keys_and_the_content_can_be_skipped_to(page: Page) -> None:
    page.goto("/console/")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    for number, title in enumerate(page.get_by_role("navigation").get_by_role("link").all_text_contents(), 1):
        page.keyboard.press(str(number))
        expect(page).to_have_title(f"{title} – Sluice")
