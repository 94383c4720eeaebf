"""Prices of plans: made beside the scrapes of metrics, for each new plan and now and then again."""

from __future__ import annotations

import pytest

from service.faults import Faults
from service.workspace import plans
from service.workspace.plans import PlanPricing
from tests.api.without_engine import CQL, Service
from tests.waiting import until


def expected(service: Service) -> dict[str, float]:
    """Return the expected rows by strategy, as a scrape finds them."""
    lines = service.workspace.metrics("running", ingest=False).decode().splitlines()
    found = [line.split() for line in lines if line.startswith("sluice_expected_rows{")]
    return {name.partition(chr(34))[2].rstrip(chr(34) + "}"): float(value) for name, value in found}


def test_each_new_plan_is_priced_once_and_again_as_time_passes(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    pricing = PlanPricing(service.workspace.plans, Faults(), clock_s=lambda: now_s[0])
    assert pricing.run_once() == plans.LOOK_S
    assert expected(service) == {}, "no plan"
    priced = []
    price = service.workspace.plans.price

    def slow() -> object:
        plan = price()
        assert plan is not None
        priced.append(plan.version)
        now_s[0] += 3.0
        return plan

    monkeypatch.setattr(service.workspace.plans, "price", slow)
    service.made("POST", "/queries", {"name": "q", "cql": CQL})
    assert expected(service) == {}, "a scrape prices nothing"
    assert pricing.run_once() == 60.0, "a thousand queries keep one core busy for a twentieth of the time"
    first = expected(service)
    assert first.keys() == {"plan", "unshared"}
    service.made("POST", "/queries", {"name": "longer", "cql": CQL.replace("10 SECONDS", "90 SECONDS")})
    pricing.run_once()
    assert expected(service) != first
    now_s[0] += 299.0 - 3.0
    pricing.run_once()
    assert priced == [1, 2]
    now_s[0] += 1.0
    pricing.run_once()
    assert priced == [1, 2, 2]


def test_an_error_in_pricing_fails_no_scrape(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.made("POST", "/queries", {"name": "q", "cql": CQL})
    faults = Faults()

    def broken(*_: object) -> object:
        raise ArithmeticError("no price")

    with monkeypatch.context() as patch:
        patch.setattr(plans, "price_version", broken)
        pricing = PlanPricing(service.workspace.plans, faults)
        pricing.start()
        until(lambda: faults.counts()["pricing"] > 0)
        assert expected(service) == {}
        assert [str(fault) for fault in faults.failing()] == ["pricing: ArithmeticError: no price"]
    until(lambda: expected(service).keys() == {"plan", "unshared"})
    pricing.stop()
    assert faults.failing() == ()
