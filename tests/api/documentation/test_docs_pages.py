"""The pages of the API's documentation need nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.api.without_engine import Service
from tests.browser import launched

_ASSETS = ("swagger-ui-bundle.js", "swagger-ui.css", "redoc.standalone.js", "favicon.png")
#: Picture beside its maker's name, which the policy does not let ReDoc load from there.
_OF_REDOC = "cdn.redoc.ly"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    opened = Service(tmp_path / "data")
    yield opened
    opened.close()


@pytest.mark.parametrize("page", ["docs", "redoc"])
def test_a_page_loads_only_what_the_service_has(service: Service, page: str) -> None:
    answer = service.send("GET", f"/{page}")
    assert answer.status_code == 200

    loaded = re.findall(r"""(?:src|href|url|spec-url)\s*[=:]\s*["']([^"']+)["']""", answer.text)

    assert len(loaded) >= 3
    for address in loaded:
        assert address.startswith("/api/v1/"), address
        assert service.send("GET", address.removeprefix("/api/v1")).status_code == 200
    assert not re.search(r"https?://", re.sub(r"<!--.*?-->", "", answer.text, flags=re.DOTALL))


@pytest.mark.parametrize("page", ["docs", "redoc"])
def test_a_page_may_run_its_own_scripts_alone(service: Service, page: str) -> None:
    policy = service.send("GET", f"/{page}").headers["content-security-policy"]

    scripts = re.search(r"script-src ([^;]*);", policy)
    assert scripts is not None
    assert "default-src 'none'" in policy
    assert "'self'" in scripts[1].split()
    assert "unsafe" not in scripts[1]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", ["docs", "redoc"])
def test_a_page_is_readable_in_a_browser(service: Service, page: str) -> None:
    refused: list[str] = []
    shown: list[str] = []
    addresses = [f"/{page}", "/openapi.json", *(f"/docs-assets/{name}" for name in _ASSETS)]
    # Asked for beforehand: Playwright has an event loop in this thread, and so has the client.
    answers = {f"/api/v1{address}": service.send("GET", address) for address in addresses}

    def answer(route: Route) -> None:
        path = route.request.url.removeprefix("http://127.0.0.1")
        found = answers.get(path)
        if found is None:
            refused.append(route.request.url)
            route.abort()
            return
        route.fulfill(status=found.status_code, headers=dict(found.headers), body=found.content)

    with launched() as browser:
        opened = browser.new_page()
        opened.set_default_timeout(120_000)
        opened.route("**/*", answer)
        opened.on("console", lambda message: shown.append(message.text) if message.type == "error" else None)
        opened.on("pageerror", lambda error: shown.append(str(error)))
        opened.goto(f"http://127.0.0.1/api/v1/{page}")
        expect(opened.locator("body")).to_contain_text("Register a stream", timeout=120_000)

    assert refused == []
    assert [text for text in shown if _OF_REDOC not in text] == []
