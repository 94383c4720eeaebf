"""Whatever is sent, the API never answers 5xx, and always as its OpenAPI document says.

Schemathesis makes requests out of the document and follows links between them, so that later requests name
what earlier ones made. The engine does not run: routes that start it are left out, as is the endless one.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed
from schemathesis.checks import not_a_server_error
from schemathesis.python import asgi
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.api.without_engine import CQL, Service
from tests.builders import stream_document

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
#: They start or stop Spark, or never end.
LEFT_OUT = r"/engine|/results/stream|/health"
#: Seeds that one chosen seed stands for.
_SEEDS = 100_000


@pytest.fixture(scope="module", autouse=True)
def _portal() -> None:
    """Start the thread in which Schemathesis sends all requests of a process; it never ends."""
    asgi._get_portal()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path, allowed_hosts="testserver")
    service.app.state.wait_limiter = anyio.CapacityLimiter(10)
    for name in ("A", "B"):
        service.made("POST", "/streams", stream_document(name))
    service.made("POST", "/queries", {"name": "q", "cql": CQL})
    yield service
    service.close()


def test_the_api_stands_a_few_sequences(service: Service) -> None:
    attack(service, runs=4, least_successes=10)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_the_api_stands_sequences_for_ten_minutes(service: Service, chosen_seed: int) -> None:
    done = attack(service, seconds=600, first=chosen_seed * _SEEDS, least_successes=15)
    print(f"{done} sequences")
    assert done >= 50


def prepare(case: schemathesis.Case) -> None:
    """Let no request wait, and give every other query a text that means something."""
    if "wait" in (case.query or {}):
        case.query["wait"] = 0.01
    if isinstance(case.body, dict) and isinstance(text := case.body.get("cql"), str) and len(text) % 2:
        case.body["cql"] = CQL


def one_request(
    operation: schemathesis.APIOperation, chosen: settings, answered: Mapping[str, Counter[int]]
) -> Callable[[], None]:
    """Return a test of some requests that need no other; links lead to few of the routes."""

    @settings(chosen, max_examples=5)
    @given(operation.as_strategy())
    def sent(case: schemathesis.Case) -> None:
        prepare(case)
        response = case.call()
        answered[operation.label][response.status_code // 100] += 1
        case.validate_response(response, checks=CHECKS)

    return sent


def attack(
    service: Service, *, runs: int = _SEEDS, seconds: float = math.inf, first: int = 0, least_successes: int
) -> int:
    """Send sequences of requests, the same ones for the same seeds, and return how many.

    Enough operations must succeed at least once, else the requests do not get far.

    Args:
        service: Service with streams A and B and a query.
        runs: Sequences at most.
        seconds: Time after which no further sequence is begun.
        first: Seed of the first sequence; each further one has the next.
        least_successes: Operations that must succeed.
    """

    async def without_lifespan(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":  # which would start the engine
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        await service.app(scope, receive, send)

    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", without_lifespan)
    schema = schema.exclude(path_regex=LEFT_OUT)

    answered: defaultdict[str, Counter[int]] = defaultdict(Counter)

    class Requests(schema.as_state_machine()):  # type: ignore[misc]  # made at run time
        def before_call(self, case: schemathesis.Case) -> None:
            prepare(case)

        def validate_response(self, response: Any, case: schemathesis.Case, **_: Any) -> None:
            answered[case.operation.label][response.status_code // 100] += 1
            case.validate_response(response, checks=CHECKS)

    chosen = settings(
        max_examples=1,  # streams and queries stay: what Hypothesis repeats need not be answered the same
        stateful_step_count=20,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    operations = [found.ok() for found in schema.get_all_operations()]
    until_s = time.monotonic() + seconds
    done = 0
    while done < runs and time.monotonic() < until_s:
        run, done = first + done, done + 1
        for name in ("A", "B"):
            service.send("POST", "/streams", stream_document(name))  # they may have been removed
        with_seed(run)(Requests).run(settings=chosen)
        with_seed(run)(one_request(operations[run % len(operations)], chosen, answered))()
    succeeded = sorted(label for label, classes in answered.items() if classes[2])
    assert len(succeeded) >= least_successes, f"only {succeeded} ever succeeded of {sorted(answered)}"
    return done
