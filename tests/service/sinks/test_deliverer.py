"""The deliverer's threads: they follow what is committed, and a sink that fails concerns nobody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from catalog.clock import wall_clock_us
from catalog.values.sink import FilesSink, WebhookSink
from service.sinks import deliverer
from service.sinks.deliverer import Deliverer
from tests.service.pairs import add_query
from tests.service.sinks.receiver import Receiver
from tests.service.sinks.world import OUTPUTS, World, delivering

FILES = FilesSink("alerts", "ndjson")
TIMEOUT_S = 30


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


@pytest.fixture
def running(world: World) -> Iterator[Deliverer]:
    with delivering(world) as started:
        yield started


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as started:
        yield started


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def test_what_is_committed_is_delivered(world: World, running: Deliverer) -> None:
    world.set_sink(FILES)
    for _ in range(3 * deliverer.BATCHES_PER_TURN):
        world.commit(1)
    eventually(lambda: not world.store.sinks.pending())
    world.commit(2)
    eventually(lambda: not world.store.sinks.pending())
    assert world.files(FILES) == world.by_batch()
    world.set_sink(None)
    world.commit(1)
    eventually(lambda: world.store.sinks.all() == ())


def test_a_new_start_goes_on_where_the_last_one_stopped(world: World) -> None:
    world.set_sink(FILES)
    world.commit(2)
    for _ in range(2):
        world.delivery = world.new_delivery()
        with delivering(world):
            eventually(lambda: not world.store.sinks.pending())
        world.commit(2)
    assert sorted(world.files(FILES)) == [0, 1]
    assert [record.pending for record in world.store.sinks.all()] == [1]


def test_a_receiver_that_is_down_holds_up_nobody(
    world: World, running: Deliverer, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliverer, "FIRST_DELAY_S", 0.05)
    second = add_query(world.store, "hooked", OUTPUTS)
    world.batches.routes = {**world.batches.routes, 1: (world.series, second.id)}
    receiver.refusing = 10**9
    down = world.store.sinks.set(second.id, WebhookSink(f"{receiver.url}/down"))
    world.set_sink(FILES)
    for _ in range(4):
        world.commit(3)
    eventually(lambda: len(world.files(FILES)) == 4)

    def failing() -> bool:
        waiting = world.store.sinks.pending()
        # The files are there a moment before it is written down that they are.
        return [r.id for r in waiting] == [down] and waiting[0].failing and waiting[0].failures >= 3

    eventually(failing)
    (record,) = world.store.sinks.pending()
    assert (record.pending, record.error) == (4, "the receiver answered 503 Service Unavailable")
    assert {r.headers["sluice-batch"] for r in receiver.requests} == {"0"}, "the first one holds its place"
    assert world.store.sinks.oldest_needed_batch() == 0
    receiver.refusing = 0
    eventually(lambda: not world.store.sinks.pending())
    assert [r.headers["sluice-batch"] for r in receiver.taken("/down")] == ["0", "1", "2", "3"]


def test_a_receiver_that_takes_some_is_not_left_alone_for_long(
    world: World, running: Deliverer, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliverer, "FIRST_DELAY_S", 0.05)
    receiver.fitful = True
    world.set_sink(WebhookSink(f"{receiver.url}/fitful"))
    # Were each delay twice the one before, the last would be minutes.
    for _ in range(14):
        world.commit(1)
    eventually(lambda: not world.store.sinks.pending())
    assert [r.headers["sluice-batch"] for r in receiver.taken("/fitful")] == [str(n) for n in range(14)]


def test_a_receiver_that_hangs_holds_up_nobody(world: World, receiver: Receiver) -> None:
    second = add_query(world.store, "hooked", OUTPUTS)
    world.batches.routes = {**world.batches.routes, 1: (world.series, second.id)}
    world.store.sinks.set(second.id, WebhookSink(f"{receiver.url}/hangs"))
    world.set_sink(FILES)
    receiver.open.clear()
    with delivering(world):
        for number in range(3):
            world.commit(2)
            eventually(lambda number=number: len(world.files(FILES)) == number + 1)  # type: ignore[misc]
        eventually(lambda: [record.pending for record in world.store.sinks.pending()] == [3])
        receiver.open.set()
        eventually(lambda: not world.store.sinks.pending())


def test_a_former_sink_that_never_answers_is_given_up_after_a_day(
    world: World, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.refusing = 10**9
    world.set_sink(WebhookSink(f"{receiver.url}/dead"))
    world.commit(1)
    world.commit(1)
    world.set_sink(FILES)
    world.commit(1)
    with delivering(world, start=False) as turns:
        turns.run_once()
        eventually(lambda: len(world.store.sinks.pending()) == 1)
        eventually(lambda: world.store.sinks.pending()[0].failing)
        turns.run_once()
        assert world.store.sinks.oldest_needed_batch() == 0
        turns.now_us = lambda: wall_clock_us() + round((deliverer.GIVE_UP_S + 60) * 1e6)
        turns.run_once()
    assert world.store.sinks.pending() == ()
    assert world.store.sinks.oldest_needed_batch() is None
    assert "results given up that a former sink did not take: the receiver answered 503" in caplog.text
    assert sorted(world.files(FILES)) == [2]


def test_a_directory_that_cannot_be_written_is_told(world: World, running: Deliverer) -> None:
    world.exports.mkdir()
    (world.exports / "alerts").write_text("a file is in the way")
    world.set_sink(FILES)
    world.commit(1)
    eventually(lambda: world.present().failing)
    record = world.present()
    assert record.error is not None
    assert record.pending == 1
    (world.exports / "alerts").unlink()
    eventually(lambda: not world.store.sinks.pending())
    assert world.files(FILES) == world.by_batch()


def test_an_idle_deliverer_costs_next_to_nothing(world: World, running: Deliverer) -> None:
    for n in range(50):
        query = add_query(world.store, f"idle{n}", OUTPUTS)
        world.store.sinks.set(query.id, FilesSink(f"idle{n}"))
    world.set_sink(FILES)
    world.commit(1)
    eventually(lambda: not world.store.sinks.pending())
    before_s = time.process_time()
    threading.Event().wait(3)
    assert (time.process_time() - before_s) / 3 < 0.02


def test_a_webhook_that_replaces_one_of_the_same_url_waits_for_it(
    world: World, running: Deliverer, receiver: Receiver
) -> None:
    sink = WebhookSink(f"{receiver.url}/replaced")
    receiver.refusing = 1
    world.set_sink(sink)
    world.commit(1)
    eventually(lambda: world.present().failing)
    world.set_sink(sink)
    world.commit(1)
    eventually(lambda: not world.store.sinks.pending())
    assert [r.headers["sluice-batch"] for r in receiver.taken("/replaced")] == ["0", "1"]
