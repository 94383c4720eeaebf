"""What sinks are given is what REST has, each batch at one sink, whatever changes and crashes in between."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from catalog.values.sink import FilesSink, Sink, WebhookSink
from service.errors import CorruptResults, SinkFailed
from tests.catalog.examples import undone
from tests.service.sinks.receiver import Receiver
from tests.service.sinks.world import OTHER_OUTPUTS, OUTPUTS, World

FILES = FilesSink("alerts", "ndjson")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as started:
        yield started


def posted(receiver: Receiver, sink: WebhookSink) -> dict[int, list[Any]]:
    """Rows that a receiver took, by batch, in the order in which they came."""
    found: dict[int, list[Any]] = {}
    for request in receiver.taken("/" + sink.url.rpartition("/")[2]):
        batch = int(request.headers["sluice-batch"])
        assert batch == max([batch, *found]), "batches come in order"
        found.setdefault(batch, []).extend(request.rows)
    return found


def test_a_file_per_batch_with_results(world: World) -> None:
    world.commit(5)
    world.set_sink(FILES)
    for rows, others in ((4, 2), (0, 3), (7, 0)):
        world.commit(rows, others)
    assert world.deliver() == 2
    rest = world.by_batch()
    assert world.files(FILES) == {1: rest[1], 3: rest[3]}
    assert [row["k"] for row in rest[1]] == sorted((row["k"] for row in rest[1]), reverse=True)
    record = world.present()
    assert (record.pending, record.rows, record.batches, record.last_batch) == (0, 11, 2, 3)
    assert world.deliver() == 0


def test_the_former_sink_gets_what_is_before_and_the_new_one_what_is_after(world: World) -> None:
    world.set_sink(FILES)
    world.commit(3)
    other = FilesSink("later", "parquet")
    world.set_sink(other)
    world.commit(2)
    # With the version of a new text, whose columns are others; two batches before it is in force.
    third = FilesSink("third", "ndjson")
    world.update(*OTHER_OUTPUTS)
    world.set_sink(third, world.version)
    version, world.version = world.version, 1
    before = world.query
    world.batches.routes = {**world.batches.routes, 101: (world.series,)}
    world.query = world.store.queries.by_id(world.series).query
    world.commit(4)
    world.deliver()
    world.version, world.query = version, before
    world.commit(1)
    world.deliver()
    rest = world.by_batch()
    assert world.files(FILES) == {0: rest[0]}
    assert world.files(other) == {1: rest[1], 2: rest[2]}
    assert world.files(third) == {3: rest[3]}
    assert list(rest[3][0]) == ["w", "t", "_event_time"]


def test_what_belongs_to_a_removed_query_is_still_delivered(world: World) -> None:
    world.set_sink(FILES)
    world.commit(3)
    world.remove()
    world.commit(0)
    assert world.deliver() == 1
    assert world.files(FILES) == world.by_batch()


def test_a_crash_between_file_and_progress_repeats_the_file(world: World) -> None:
    world.set_sink(FILES)
    world.commit(3)
    with undone(world.store):
        assert world.deliver() == 1
    (file,) = (world.exports / "alerts").iterdir()
    before = file.read_bytes()
    file.write_bytes(b"half")  # as if the machine had gone down before it was on disk
    assert world.deliver() == 1
    assert file.read_bytes() == before
    assert world.files(FILES) == world.by_batch()


def test_one_turn_gives_so_many_batches(world: World) -> None:
    world.set_sink(FILES)
    for _ in range(5):
        world.commit(1)
    assert [world.deliver(2) for _ in range(4)] == [2, 2, 1, 0]
    assert world.files(FILES) == world.by_batch()


def test_results_that_are_not_whole_are_not_delivered(world: World) -> None:
    world.set_sink(FILES)
    world.commit(3)
    (file,) = (world.directory / "results").iterdir()
    whole = file.read_bytes()
    pq.write_table(pq.read_table(file).slice(0, 2), file)
    with pytest.raises(CorruptResults, match="are not whole"):
        world.deliver()
    assert world.files(FILES) == {}
    file.write_bytes(whole)
    assert world.deliver() == 1


def test_parts_of_a_batch_are_posted_in_order_with_key_and_cursor(world: World, receiver: Receiver) -> None:
    sink = WebhookSink(f"{receiver.url}/parts")
    world.set_sink(sink)
    world.commit(7)
    world.commit(0, 1)
    world.commit(2)
    assert world.deliver() == 2
    requests = receiver.taken("/parts")
    facts = [
        (r.headers["sluice-batch"], r.headers["sluice-cursor"], r.headers["idempotency-key"], len(r.rows))
        for r in requests
    ]
    key = f"sluice-{world.series}"
    assert facts == [
        ("0", "0.3", f"{key}-0.0", 3),
        ("0", "0.6", f"{key}-0.3", 3),
        ("0", "0.7", f"{key}-0.6", 1),
        ("2", "2.2", f"{key}-2.0", 2),
    ]
    assert {r.headers["content-type"] for r in requests} == {"application/x-ndjson"}
    assert {r.headers["sluice-query"] for r in requests} == {"q"}
    assert posted(receiver, sink) == world.by_batch()


def test_a_part_that_was_refused_is_posted_again_and_nothing_after_it_before(
    world: World, receiver: Receiver
) -> None:
    sink = WebhookSink(f"{receiver.url}/refused")
    world.set_sink(sink)
    world.commit(5)
    receiver.refusing = 1
    with pytest.raises(SinkFailed, match="the receiver answered 503 Service Unavailable"):
        world.deliver()
    with undone(world.store):  # taken, but a crash comes before that is written down
        world.deliver()
    assert world.deliver() == 1
    assert posted(receiver, sink) == world.by_batch()
    assert [r.headers["sluice-cursor"] for r in receiver.requests if r.path == "/refused"] == [
        "0.3",
        "0.3",
        "0.5",
        "0.3",
        "0.5",
    ]


def test_a_redirect_is_not_followed(world: World, receiver: Receiver) -> None:
    world.set_sink(WebhookSink(f"{receiver.url}/moved"))
    world.commit(1)
    receiver.refusing, receiver.status = 1, 307
    with pytest.raises(SinkFailed, match="the receiver answered 307"):
        world.deliver()
    receiver.status = 503


def test_nobody_listening_is_a_failure_in_words(world: World) -> None:
    world.set_sink(WebhookSink("http://127.0.0.1:9/"))
    world.commit(1)
    with pytest.raises(SinkFailed, match="ConnectError"):
        world.deliver()
    assert world.present().pending == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(0, 7), st.integers(0, 2)),
        st.tuples(st.just("sink"), st.integers(0, 4), st.booleans()),
        st.tuples(st.just("update"), st.booleans()),
        st.tuples(st.just("deliver"), st.integers(1, 3)),
        st.tuples(st.just("crash"), st.integers(1, 3)),
        st.tuples(st.just("refuse"), st.integers(1, 2)),
        st.tuples(st.just("restart")),
        st.tuples(st.just("drop")),
    ),
    min_size=3,
    max_size=25,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
@example(  # a webhook that replaces one of the same URL
    steps=[
        ("sink", 3, False),
        ("commit", 1, 0),
        ("commit", 1, 0),
        ("sink", 3, False),
        ("commit", 1, 0),
        ("deliver", 1),
    ]
)
def test_sinks_together_get_what_rest_has(steps: list[tuple[Any, ...]], receiver: Receiver) -> None:
    """Any sequence of batches, sinks, texts, crashes and refusals."""
    receiver.requests.clear()
    receiver.refusing = 0
    kinds: list[Sink | None] = [
        None,
        FilesSink("a", "ndjson"),
        FilesSink("b/c", "parquet"),
        WebhookSink(f"{receiver.url}/x"),
        WebhookSink(f"{receiver.url}/y"),
    ]
    with tempfile.TemporaryDirectory() as directory, World(Path(directory)) as world:
        present: Sink | None = None
        expected: dict[int, Sink | None] = {}

        def deliver(batches: int = 1000) -> None:
            with suppress(SinkFailed):  # it was refused
                world.deliver(batches)

        for step in steps:
            match step:
                case ("commit", rows, others):
                    expected[world.commit(rows, others)] = present
                case ("sink", number, with_text):
                    present = kinds[number]
                    world.set_sink(present, world.update() if with_text else None)
                case ("update", other):
                    world.update(*(OTHER_OUTPUTS if other else OUTPUTS))
                case ("deliver", batches):
                    deliver(batches)
                case ("crash", batches):
                    with undone(world.store):
                        deliver(batches)
                case ("refuse", times):
                    receiver.refusing = times
                case ("restart",):
                    world.delivery.close()
                    world.delivery = world.new_delivery()
                case ("drop",):
                    world.store.sinks.drop_spent()
        receiver.refusing = 0
        expected[world.commit(1)] = present  # every version is in force now
        world.deliver()
        assert world.store.sinks.pending() == ()
        assert world.store.sinks.oldest_needed_batch() is None
        world.store.sinks.drop_spent()
        assert len(world.store.sinks.all()) <= 1
        rest = world.by_batch()
        for sink in kinds:
            mine = {batch: rest[batch] for batch, of in expected.items() if of == sink and batch in rest}
            if isinstance(sink, FilesSink):
                assert world.files(sink) == mine
            elif isinstance(sink, WebhookSink):
                assert posted(receiver, sink) == mine
