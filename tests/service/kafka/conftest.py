from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.kafka.brokers import Brokers, brokers


@pytest.fixture(scope="module")
def kafka() -> Iterator[Brokers]:
    """Brokers of a module, whose tests have topics of their own."""
    with brokers() as found:
        yield found
