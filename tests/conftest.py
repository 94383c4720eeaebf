from __future__ import annotations

import pytest
from hypothesis import settings

# Examples have no deadline: how long one takes depends on who else uses the machine. `make test` runs the
# same examples every time; `make test-slow` looks for others (``--hypothesis-profile=explore``) and prints
# its seed. What it finds becomes an ``@example``. Nothing is left to Hypothesis, which has other defaults
# where it finds itself in CI.
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile("explore", deadline=None, derandomize=False, database=None, print_blob=True)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-goldens", action="store_true", help="write what Sluice says now into the goldens"
    )


@pytest.fixture
def rewrite_goldens(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-goldens", default=False))
