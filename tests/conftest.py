from __future__ import annotations

import pytest
from hypothesis import settings

# How long an example takes depends on who else uses the machine.
settings.register_profile("sluice", deadline=None)
settings.load_profile("sluice")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-goldens", action="store_true", help="write what Sluice says now into the goldens"
    )


@pytest.fixture
def rewrite_goldens(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-goldens", default=False))
