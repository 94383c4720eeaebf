"""What is wanted of the engine, and what others see of it, by rows of the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from catalog.store.lease import Lease
from catalog.store.store import Store
from service.engine.engine_control import EngineControl, EngineStatus, EngineWish, report, wish_of
from service.engine.ownership.catalog_lease import this_process
from service.errors import NothingToSkip
from service.inputs.reading.voided import voided_batches
from tests.empty_catalog import prepared

EXPIRY_MS = 8_000


@dataclass
class Clock:
    now_s: float = 0.0
    step_s: float = 0.001

    def __call__(self) -> float:
        self.now_s += self.step_s  # whoever waits comes to an end
        return self.now_s


@dataclass
class Observed:
    """A catalog on either database, and one who looks at its engine."""

    store: Store
    clock: Clock
    control: EngineControl
    lease: Lease | None = None

    def begin(self) -> str:
        """Let an engine take the lease and return its token."""
        self.lease = self.store.twin().lease.take(this_process(Path("/data")), EXPIRY_MS, self.lease)
        assert self.lease is not None
        return self.lease.token

    def renew(self) -> None:
        assert self.lease is not None
        self.store.lease.renew(self.lease)


@pytest.fixture
def observed(either_url: str) -> Iterator[Observed]:
    clock = Clock()
    with Store.open(prepared(either_url)) as store:
        yield Observed(store, clock, EngineControl(store, clock))


def test_without_an_engine_it_is_stopped(observed: Observed) -> None:
    assert observed.control.status() == EngineStatus()


def test_it_is_as_it_reports_until_it_renews_its_lease_no_more(observed: Observed) -> None:
    token = observed.begin()
    assert observed.control.status().state == "starting", "it has reported nothing yet"
    running = EngineStatus("running", 7, run_id="r", token=token)
    report(observed.store, running)
    for _ in range(3):
        observed.clock.now_s += EXPIRY_MS / 1000 - 1
        observed.renew()
        assert observed.control.status() == running
    observed.clock.now_s += EXPIRY_MS / 1000 - 1
    assert observed.control.status() == running
    observed.clock.now_s += 2
    dead = observed.control.status()
    assert (dead.state, dead.token) == ("stopped", "")
    assert "has not renewed its lease for 9 s" in str(dead.error)
    observed.renew()
    assert observed.control.status() == running


def test_an_engine_that_starts_its_job_again_is_the_same_engine(observed: Observed) -> None:
    running = EngineStatus("running", 7, run_id="r", token=observed.begin())
    report(observed.store, running)
    assert observed.lease is not None
    assert observed.store.lease.begin_epoch(observed.lease) == 2
    assert observed.control.status() == running


def test_what_an_engine_before_reported_does_not_count(observed: Observed) -> None:
    report(observed.store, EngineStatus("running", token=observed.begin()))
    assert observed.lease is not None
    observed.store.lease.release(observed.lease)
    assert observed.control.status().state == "stopped"
    observed.lease = observed.store.lease.current()
    observed.begin()
    assert observed.control.status().state == "starting"


def test_wishes_are_numbered_and_outlive_engines(observed: Observed) -> None:
    assert wish_of(observed.store) == EngineWish("running", 0, 0)
    observed.control.want("paused")
    assert wish_of(observed.store) == EngineWish("paused", 1, 0)
    observed.control.want("running", restart=True)
    observed.control.want("running")
    assert wish_of(observed.store) == EngineWish("running", 3, 2)


def test_a_wish_is_waited_for_while_an_engine_lives(observed: Observed) -> None:
    token = observed.begin()
    report(observed.store, EngineStatus("running", token=token, followed=1))
    observed.control.want("paused")  # number 1
    before_s, observed.clock.step_s = observed.clock.now_s, 0.5
    observed.control.want("running")  # number 2, which nobody follows
    assert observed.clock.now_s - before_s > EXPIRY_MS / 1000 - 1


def test_a_batch_that_has_failed_is_voided(observed: Observed) -> None:
    failed = EngineStatus("failed", failures=2, failing=7, error="broken", token=observed.begin(), followed=9)
    report(observed.store, failed)
    with pytest.raises(NothingToSkip, match="no batch can be skipped") as refused:
        observed.control.skip((3,), "ops")
    assert "Batch 0 has not failed since it was begun" in str(refused.value)
    assert voided_batches(observed.store) == ()
    assert wish_of(observed.store).number == 0
    report(observed.store, replace(failed, failing=0))
    voided = observed.control.skip((3,), "ops")
    assert voided_batches(observed.store) == (voided,)
    assert (voided.batch, voided.stream_ids, voided.reason, voided.actor) == (0, (3,), "broken", "ops")
    assert wish_of(observed.store) == EngineWish("running", 1, 1)


def test_the_engine_of_this_process_tells_itself_while_it_cannot_write(observed: Observed) -> None:
    token = observed.begin()
    report(observed.store, EngineStatus("running", 7, run_id="r", followed=3, token=token))
    assert observed.control.status().state == "running"
    observed.control.own = lambda: EngineStatus("failed", 9, error="disk full", token=token)
    observed.clock.now_s += EXPIRY_MS / 1000 + 1
    assert observed.control.status() == EngineStatus("failed", 9, error="disk full", followed=3, token=token)
    observed.control.own = lambda: EngineStatus("standby", 9, token="another")
    assert observed.control.status().state == "stopped"
