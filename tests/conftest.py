from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from catalog.store.store import Store

# Examples have no deadline: how long one takes depends on who else uses the machine. `make test` runs the
# same examples every time; `make test-slow` looks for others (``--hypothesis-profile=explore``) and prints
# its seed. What it finds becomes an ``@example``. Nothing is left to Hypothesis, which has other defaults
# where it finds itself in CI.
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile("explore", deadline=None, derandomize=False, database=None, print_blob=True)
settings.load_profile("repeatable")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """URL of a catalog that does not exist yet."""
    return f"sqlite:///{tmp_path / 'catalog.db'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An empty catalog in a fresh directory, whose clock ticks once per look."""
    ticks = itertools.count(1_000_000)
    with Store.open(url, now_us=lambda: next(ticks), busy_timeout_s=10) as opened:
        yield opened


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-goldens", action="store_true", help="write what Sluice says now into the goldens"
    )


@pytest.fixture
def rewrite_goldens(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-goldens", default=False))
