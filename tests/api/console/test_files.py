"""The console's files: served with a policy, from nowhere else, and asking only for what the API has."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from api.console.console import STATIC
from tests.api.without_engine import Service

FILES = sorted(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file())
#: A name of XML, which nothing is loaded from.
_NAMESPACE = "http://www.w3.org/2000/svg"
#: Calls of the API in modules: `get("plan")`, `post(`queries/${...}:pause`)`.
_CALL = re.compile(
    r"(?<![.\w])(get|getAll|getIfChanged|follow|post|patch|remove)\(\s*(?:\"([^\"]+)\"|`([^`]+)`)", re.DOTALL
)
_METHODS = {"post": "post", "patch": "patch", "remove": "delete"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    opened = Service(tmp_path_factory.mktemp("console") / "data")
    yield opened
    opened.close()


def test_a_browser_is_led_to_the_console_and_a_client_of_the_api_is_not(service: Service) -> None:
    root = "http://127.0.0.1/"

    browser = service.request("GET", root, headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    client = service.request("GET", root, headers={"Accept": "*/*"})

    assert (browser.status_code, browser.headers["location"]) == (307, "console/")
    assert client.status_code == 404
    assert client.json()["code"] == "route-not-found"
    assert service.request("GET", f"{root}console").headers["location"] == "console/"
    assert 'src="main.js"' in service.request("GET", f"{root}console/").text


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_served_with_the_policy_and_again_only_when_it_changed(service: Service, name: str) -> None:
    address = f"http://127.0.0.1/console/{name}"

    answer = service.request("GET", address)

    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-cache"
    again = service.request("GET", address, headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize("name", FILES)
def test_a_file_names_no_other_host_and_has_nothing_inline(name: str) -> None:
    text = (STATIC / name).read_text(encoding="utf-8").replace(_NAMESPACE, "")

    assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    if name.endswith(".html"):
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text)
    if name.endswith(".js"):
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_a_module_imports_what_another_one_has(name: str) -> None:
    text = (STATIC / name).read_text(encoding="utf-8")

    for names, module in re.findall(r"import \{([^}]*)\} from \"\./([^\"]+)\";", text):
        other = (STATIC / module).read_text(encoding="utf-8")
        for imported in (part.strip() for part in names.split(",")):
            assert re.search(rf"export (async )?(const|function|class) {imported}\b", other), imported
            assert len(re.findall(rf"\b{imported}\b", text)) > 1, f"{imported} is imported and not used"


def test_every_call_of_the_console_is_one_of_the_public_api(service: Service) -> None:
    paths = service.made("GET", "/openapi.json")["paths"]
    known = {
        (method, re.sub(r"\{[^}]*\}", "*", path.removeprefix("/api/v1/")))
        for path, item in paths.items()
        for method in item
    }
    called = set()
    for name in FILES:
        if name.endswith(".js") and name != "api.js":
            for verb, plain, template in _CALL.findall((STATIC / name).read_text(encoding="utf-8")):
                path = plain or re.sub(r"\$\{[^}]*\}", "*", template)
                called.add((_METHODS.get(verb, "get"), path.split("?")[0]))

    # A query's own page has its path in a variable.
    called = {(method, path.replace("*/results", "queries/*/results")) for method, path in called}
    assert len(called) >= 8
    assert called - known == set()
