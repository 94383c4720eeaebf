"""The pages of the API's documentation need nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.without_engine import Service


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
