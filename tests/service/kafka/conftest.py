from __future__ import annotations

from collections.abc import Iterator

import pytest

from service.inputs.sources.topics import topic_reader
from tests.service.kafka.brokers import Brokers, brokers


@pytest.fixture(scope="module")
def kafka() -> Iterator[Brokers]:
    """Brokers of a module, whose tests have topics of their own."""
    with brokers() as found:
        yield found


@pytest.fixture(autouse=True)
def _connections() -> Iterator[None]:
    """Close the connections that a worker keeps for its next batch."""
    yield
    topic_reader._consumer.cache_clear()
