"""Results that are old enough to go stay for as long as a sink lacks them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.store.results import retention
from catalog.values.sink import FilesSink, WebhookSink
from service.commit.upkeep.retention import ResultRetention
from service.errors import SinkFailed
from tests.service.sinks.receiver import Receiver
from tests.service.sinks.world import World

FILES = FilesSink("alerts", "ndjson")
#: Wall clock at which every batch here is old.
LATE_US = 10**15


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(retention, "KEPT_BATCHES", 1)
    with World(tmp_path) as made:
        yield made


def drop(world: World) -> int:
    """Drop what may go, as a service does; return how many batches lost their results."""
    kept = ResultRetention(
        world.store,
        world.directory / "results",
        world.directory / "late",
        1,
        str(world.directory / "engine.lock"),
        needed_from=world.store.sinks.oldest_needed_batch,
        interval_s=0,
        unlink_after_s=0,
    )
    return kept.run_once(LATE_US) + kept.run_once(LATE_US + 1)


def test_what_a_sink_lacks_is_kept(world: World) -> None:
    for _ in range(3):
        world.commit(2)
    world.set_sink(FILES)
    for _ in range(5):
        world.commit(2)
    rest = world.by_batch()
    assert drop(world) == 3, "those of before are not the sink's"
    world.deliver(2)
    assert drop(world) == 2
    world.deliver()
    assert drop(world) == 2
    assert world.files(FILES) == {batch: rest[batch] for batch in range(3, 8)}


def test_a_receiver_that_is_down_gets_everything_however_late(world: World) -> None:
    with Receiver() as receiver:
        world.set_sink(WebhookSink(f"{receiver.url}/late"))
        receiver.refusing = 1
        for _ in range(4):
            world.commit(4)
        rest = world.by_batch()
        with pytest.raises(SinkFailed):
            world.deliver()
        assert drop(world) == 0
        # Two parts of batch 0 are one batch; all of it is kept until the second is taken.
        world.deliver()
        assert drop(world) == 3
        rows = [row for request in receiver.taken("/late") for row in request.rows]
        assert rows == [row for batch in sorted(rest) for row in rest[batch]]


def test_results_are_kept_for_a_sink_whose_version_is_not_in_force(world: World) -> None:
    world.commit(1)
    world.set_sink(FILES, version=9)
    for _ in range(3):
        world.commit(1)
    assert drop(world) == 1
    world.version = 9
    for _ in range(3):
        world.commit(1)
    assert drop(world) == 0, "nobody has looked which batch is the first"
    world.deliver()
    assert sorted(world.files(FILES)) == [4, 5, 6]
    assert drop(world) == 5
