"""Each batch of results goes to one sink, as REST shows it; any sequence of steps: `test_delivery_steps`."""

from __future__ import annotations

import json
from contextlib import suppress

import pyarrow.parquet as pq
import pytest

from catalog.values.sink import FilesSink, WebhookSink
from service.errors import CorruptResults, SinkFailed
from tests.catalog.examples import dying, undone
from tests.service.sinks.receiver import Receiver, posted
from tests.service.sinks.world import OTHER_OUTPUTS, World

SECOND_US = 1_000_000
FILES = FilesSink("alerts", "ndjson")


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


@pytest.mark.parametrize("left", [0, 1])
def test_what_comes_before_results_that_are_not_whole_is_delivered_and_nothing_after(
    world: World, left: int
) -> None:
    world.set_sink(FILES)
    for _ in range(4):
        world.commit(2)
    file = sorted((world.directory / "results").iterdir())[1]
    whole = file.read_bytes()
    pq.write_table(pq.read_table(file).slice(0, left), file)
    with pytest.raises(CorruptResults, match="are not whole"):
        world.deliver()
    assert 1 not in world.files(FILES)
    world.store.sinks.failed(world.present().id, "are not whole")
    with suppress(CorruptResults):  # those before it may be read by themselves now
        world.deliver()
    assert list(world.files(FILES)) == [0]
    assert (world.present().next_batch, world.present().rows, world.present().batches) == (1, 2, 1)
    file.write_bytes(whole)
    assert world.deliver() == 3
    assert world.files(FILES) == world.by_batch()


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


def test_a_file_of_several_batches(world: World) -> None:
    sink = FilesSink("alerts", "ndjson", batches_per_file=3)
    world.set_sink(sink)
    for rows in (2, 1, 0, 3, 1, 2):
        world.commit(rows)
    world.update(*OTHER_OUTPUTS)
    for rows in (1, 2):
        world.commit(rows)
    assert [world.deliver() for _ in range(4)] == [5, 2, 0, 0]
    names = sorted(path.name for path in (world.exports / "alerts").iterdir())
    assert names == [
        "batch-000000000-000000003-q1.ndjson",
        "batch-000000004-000000005-q1.ndjson",
        f"batch-000000006-000000007-q{world.query.id}.ndjson",
    ]
    assert world.all_rows(sink) == [row for rows in world.by_batch().values() for row in rows]
    record = world.present()
    assert (record.batches, record.rows, record.last_batch, record.file_end) == (7, 12, 7, None)


def test_a_file_waits_for_more_batches_as_long_as_it_may(world: World) -> None:
    world.batches.spacing_us = SECOND_US
    sink = FilesSink("alerts", "ndjson", batches_per_file=3, max_delay_us=10 * SECOND_US)
    world.set_sink(sink)
    now_us = 0
    world.delivery.now_us = lambda: now_us
    for _ in range(4):
        world.commit(1)
    assert [world.deliver(), world.deliver()] == [3, 0], "a full one does not wait"
    now_us = 13 * SECOND_US - 1
    assert world.deliver() == 0
    now_us = 13 * SECOND_US  # ten seconds after batch 3
    assert world.deliver() == 1
    world.commit(1)
    assert world.deliver() == 0
    world.set_sink(None)
    assert world.deliver() == 1, "nothing more comes"
    assert world.all_rows(sink) == [row for rows in world.by_batch().values() for row in rows]


def test_a_begun_file_stays_as_it_was_begun(world: World) -> None:
    sink = FilesSink("alerts", "ndjson", batches_per_file=4)
    world.set_sink(sink)
    world.commit(1)
    world.commit(2)
    with dying(world.store, writes=1):  # the file is there, and the catalog does not know
        world.deliver()
    (file,) = (world.exports / "alerts").iterdir()
    before = file.read_bytes()
    assert world.present().file_end == 1
    for _ in range(3):
        world.commit(1)
    assert [world.deliver(), world.deliver()] == [2, 3]
    assert file.read_bytes() == before
    assert sorted(path.name for path in file.parent.iterdir()) == [
        "batch-000000000-000000001-q1.ndjson",
        "batch-000000002-000000004-q1.ndjson",
    ]


def test_a_consumer_is_told_what_was_lost(world: World, receiver: Receiver) -> None:
    hook = WebhookSink(f"{receiver.url}/lossy")
    for sink in (FILES, hook):
        world.set_sink(sink)
        for rows in (2, 3, 1):
            world.commit(rows)
        (record,) = world.store.sinks.pending()
        assert world.store.sinks.lose(record, world.batches.next - 1).rows == 5
        assert world.present().losing
        world.deliver()
        assert not world.present().losing
    lost = (world.exports / "alerts" / f"_lost-q{world.series}.json").read_text()
    assert json.loads(lost) == {"query": "q", "batches": 2, "rows": 5, "last_batch": 1}
    assert list(world.files(FILES)) == [2]
    (request,) = receiver.taken("/lossy")
    assert (request.headers["sluice-batch"], request.headers["sluice-lost-rows"]) == ("5", "5")
