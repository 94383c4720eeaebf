"""The deliverer's threads: they follow what is committed, and a sink that fails concerns nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psutil
import pytest

from catalog.store.results import retention
from catalog.times.clock import wall_clock_us
from catalog.values.sink import FilesSink, SinkRecord, WebhookSink
from service.sinks import deliverer
from service.sinks.deliverer import Deliverer, KeptForSinks
from tests.service.pairs import add_query
from tests.service.sinks.receiver import Receiver
from tests.service.sinks.world import OUTPUTS, World, delivering
from tests.waiting import until

FILES = FilesSink("alerts", "ndjson")
TIMEOUT_S = 120
HOUR_US = 3_600_000_000


@pytest.fixture
def running(world: World) -> Iterator[Deliverer]:
    with delivering(world) as started:
        yield started


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as started:
        yield started


def test_what_is_committed_is_delivered(world: World, running: Deliverer) -> None:
    world.set_sink(FILES)
    for _ in range(3 * deliverer.BATCHES_PER_TURN):
        world.commit(1)
    until(lambda: not world.store.sinks.pending())
    world.commit(2)
    until(lambda: not world.store.sinks.pending())
    assert world.files(FILES) == world.by_batch()
    world.set_sink(None)
    world.commit(1)
    until(lambda: world.store.sinks.all() == ())


def test_a_new_start_goes_on_where_the_last_one_stopped(world: World) -> None:
    world.set_sink(FILES)
    world.commit(2)
    for _ in range(2):
        world.delivery = world.new_delivery()
        with delivering(world):
            until(lambda: not world.store.sinks.pending())
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
    until(lambda: len(world.files(FILES)) == 4)

    def failing() -> bool:
        waiting = world.store.sinks.pending()
        # The files are there a moment before it is written down that they are.
        return [r.id for r in waiting] == [down] and waiting[0].failing and waiting[0].failures >= 3

    until(failing)
    (record,) = world.store.sinks.pending()
    assert (record.pending, record.error) == (4, "the receiver answered 503 Service Unavailable")
    assert {r.headers["sluice-batch"] for r in receiver.requests} == {"0"}, "the first one holds its place"
    assert world.store.sinks.oldest_needed_batch() == 0
    receiver.refusing = 0
    until(lambda: not world.store.sinks.pending())
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
    until(lambda: not world.store.sinks.pending())
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
            until(lambda number=number: len(world.files(FILES)) == number + 1)  # type: ignore[misc]
        until(lambda: [record.pending for record in world.store.sinks.pending()] == [3])
        receiver.open.set()
        until(lambda: not world.store.sinks.pending())


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
        until(lambda: len(world.store.sinks.pending()) == 1)
        until(lambda: world.store.sinks.pending()[0].failing)
        turns.run_once()
        assert world.store.sinks.oldest_needed_batch() == 0
        turns.now_us = lambda: wall_clock_us() + round((deliverer.GIVE_UP_S + 60) * 1e6)
        turns.run_once()
    assert world.store.sinks.pending() == ()
    assert world.store.sinks.oldest_needed_batch() is None
    assert "results are lost that a removed sink did not accept: the receiver answered 503" in caplog.text
    assert sorted(world.files(FILES)) == [2]


def test_what_a_sink_does_not_take_in_time_is_lost_counted_and_told(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deliverer, "FIRST_DELAY_S", 0.0)  # each look is an attempt
    monkeypatch.setattr(retention, "KEPT_BATCHES", 4)
    world.batches.spacing_us = HOUR_US
    receiver.refusing = 10**9
    world.set_sink(WebhookSink(f"{receiver.url}/slow"))
    for _ in range(12):
        world.commit(2)
    now_us = [12 * HOUR_US]
    turns = Deliverer(
        world.store, world.delivery, KeptForSinks(10 * HOUR_US, None, HOUR_US), now_us=lambda: now_us[0]
    )

    def look(after_us: int) -> SinkRecord:
        """Look again after a while, and wait for the attempt that comes of it."""
        now_us[0] += after_us
        before = world.present().failures
        turns.run_once()
        until(lambda: world.present().failures > before and not turns._busy)
        return world.present()

    try:
        record = look(HOUR_US // 100)
        assert (record.lost, record.pending, record.losing) == (0, 12, False), (
            "it had no time to take them yet"
        )
        record = look(HOUR_US // 5)
        assert (record.lost, record.lost_rows, record.lost_batch, record.pending) == (3, 6, 2, 9)
        assert record.losing
        assert world.store.sinks.oldest_needed_batch() == 3
        lines = [line for line in caplog.records if line.message.startswith("results lost")]
        assert [(line.levelname, line.query, line.batches, line.rows) for line in lines] == [
            ("ERROR", "q", 3, 6)
        ]
        assert "the receiver answered 503" in lines[0].message
        record = look(100 * HOUR_US)
        assert (record.lost, record.pending) == (8, 4), "the newest stay, however old they are"
        receiver.refusing = 0
        now_us[0] += HOUR_US
        turns.run_once()
        until(lambda: not world.store.sinks.pending())
    finally:
        turns.stop()
    taken = receiver.taken("/slow")
    assert [r.headers["sluice-batch"] for r in taken] == ["8", "9", "10", "11"]
    assert {r.headers["sluice-lost-rows"] for r in taken} == {"16"}
    assert not world.present().losing
    assert "results wait for a sink that lags: the receiver answered 503" in caplog.text


def test_what_takes_too_much_space_for_a_sink_is_lost_counted_and_told(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deliverer, "FIRST_DELAY_S", 0.0)  # each look is an attempt
    monkeypatch.setattr(retention, "KEPT_BATCHES", 4)
    world.batches.spacing_us = HOUR_US
    world.batches.sized = True
    receiver.refusing = 10**9
    world.set_sink(WebhookSink(f"{receiver.url}/large"))
    for _ in range(12):
        world.commit(2)
    size = world.store.result_files.sizes_before(12).since
    assert size(0) - size(1) == (world.directory / "results" / "b000000-f-e1-0.parquet").stat().st_size
    now_us = [12 * HOUR_US]
    turns = Deliverer(world.store, world.delivery, now_us=lambda: now_us[0])

    def kept(limit: int, results_us: int) -> SinkRecord:
        """Return the sink after a look an hour later, and the attempt that comes of it."""
        turns.kept = KeptForSinks(None, limit, results_us)
        now_us[0] += HOUR_US
        failures = world.present().failures
        turns.run_once()
        until(lambda: world.present().failures > failures and not turns._busy)
        return world.present()

    try:
        turns.run_once()
        until(lambda: world.present().failing and not turns._busy)
        record = kept(0, 100 * HOUR_US)
        assert (record.lost, record.waiting_from) == (0, 0), "readers keep them anyway"
        record = kept(size(0) - size(8), HOUR_US)
        assert (record.lost, record.waiting_from) == (0, 0), "the newest four are not kept for it alone"
        record = kept(size(3) - size(8), HOUR_US)
        assert (record.lost, record.lost_rows, record.lost_batch, record.waiting_from) == (3, 6, 2, 3)
        assert record.losing
        assert kept(0, HOUR_US).waiting_from == 8, "the newest stay"
    finally:
        turns.stop()
    lines = [line for line in caplog.records if line.message.startswith("results lost")]
    assert [(line.levelname, line.batches, line.rows) for line in lines] == [
        ("ERROR", 3, 6),
        ("ERROR", 5, 10),
    ]
    assert "took too much space for a sink: the receiver answered 503" in lines[0].message


def test_nothing_is_lost_where_results_are_kept_without_end(
    world: World, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.refusing = 10**9
    world.set_sink(WebhookSink(f"{receiver.url}/kept"))
    for _ in range(3):
        world.commit(1)
    now_us = [0]
    turns = Deliverer(world.store, world.delivery, now_us=lambda: now_us[0])
    try:
        now_us[0] = 10**15
        turns.run_once()
        until(lambda: world.present().failing)
    finally:
        turns.stop()
    assert (world.present().pending, world.present().lost) == (3, 0)
    assert "results wait for a sink that lags: it accepts results more slowly than they arrive" in caplog.text


def test_a_file_that_waits_for_more_batches_is_written_in_time(world: World) -> None:
    sink = FilesSink("alerts", "ndjson", batches_per_file=10, max_delay_us=1_500_000)
    world.batches.started_us = wall_clock_us()
    world.set_sink(sink)
    world.commit(1)
    with delivering(world):
        threading.Event().wait(0.5)
        world.commit(1)
        until(lambda: not world.store.sinks.pending())
    assert [path.name for path in (world.exports / "alerts").iterdir()] == [
        "batch-000000000-000000001-q1.ndjson"
    ]
    assert world.all_rows(sink) == [row for rows in world.by_batch().values() for row in rows]


def test_sinks_that_are_files_are_written_side_by_side(world: World) -> None:
    ids = [world.series, *(add_query(world.store, f"x{n}", OUTPUTS).id for n in range(11))]
    world.batches.routes = {1: tuple(ids), 2: (world.other.id,)}
    sinks = [FilesSink(f"s{n}", "ndjson", batches_per_file=1 + 4 * (n % 2)) for n in range(12)]
    for query_id, sink in zip(ids, sinks, strict=True):
        world.store.sinks.set(query_id, sink)
    for n in range(20):
        world.commit(n % 3)
    with delivering(world):
        until(lambda: not world.store.sinks.pending())
    rest = [row for rows in world.by_batch().values() for row in rows]
    for sink in sinks:
        assert world.all_rows(sink) == rest
    assert {record.batches for record in world.store.sinks.all()} == {13}


def test_a_directory_that_cannot_be_written_is_told(world: World, running: Deliverer) -> None:
    world.exports.mkdir()
    (world.exports / "alerts").write_text("a file is in the way")
    world.set_sink(FILES)
    world.commit(1)
    until(lambda: world.present().failing)
    record = world.present()
    assert record.error is not None
    assert record.pending == 1
    (world.exports / "alerts").unlink()
    until(lambda: not world.store.sinks.pending())
    assert world.files(FILES) == world.by_batch()


def cpu_of_deliverer_s() -> float:
    """CPU time of its threads: other tests of this process may have left some that do something."""
    own = {thread.native_id for thread in threading.enumerate() if thread.name.startswith("sink")}
    assert own
    return sum(t.user_time + t.system_time for t in psutil.Process().threads() if t.id in own)


@pytest.mark.bench
def test_an_idle_deliverer_costs_next_to_nothing(world: World, running: Deliverer) -> None:
    for n in range(50):
        query = add_query(world.store, f"idle{n}", OUTPUTS)
        world.store.sinks.set(query.id, FilesSink(f"idle{n}"))
    world.set_sink(FILES)
    world.commit(1)
    until(lambda: not world.store.sinks.pending())
    before_s = cpu_of_deliverer_s()
    threading.Event().wait(3)
    assert (cpu_of_deliverer_s() - before_s) / 3 < 0.02


def test_a_webhook_that_replaces_one_of_the_same_url_waits_for_it(
    world: World, running: Deliverer, receiver: Receiver
) -> None:
    sink = WebhookSink(f"{receiver.url}/replaced")
    receiver.refusing = 1
    world.set_sink(sink)
    world.commit(1)
    until(lambda: world.present().failing)
    world.set_sink(sink)
    world.commit(1)
    until(lambda: not world.store.sinks.pending())
    assert [r.headers["sluice-batch"] for r in receiver.taken("/replaced")] == ["0", "1"]
