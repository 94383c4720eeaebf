"""Any sequence of batches, changes, crashes and losses: sinks get what REST has, each batch at one sink."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from catalog.values.sink import FilesSink, Sink, WebhookSink
from service.errors import SinkFailed
from tests.catalog.examples import dying
from tests.examples import examples
from tests.service.sinks.receiver import Receiver, posted
from tests.service.sinks.world import OTHER_OUTPUTS, OUTPUTS, World, read_file

SECOND_US = 1_000_000

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(0, 7), st.integers(0, 2)),
        st.tuples(st.just("sink"), st.integers(0, 6), st.booleans()),
        st.tuples(st.just("update"), st.booleans()),
        st.tuples(st.just("deliver"), st.integers(1, 3)),
        st.tuples(st.just("crash"), st.integers(1, 3), st.integers(0, 3)),
        st.tuples(st.just("refuse"), st.integers(1, 2)),
        st.tuples(st.just("disk")),
        st.tuples(st.just("lose"), st.integers(1, 3)),
        st.tuples(st.just("restart")),
        st.tuples(st.just("drop")),
    ),
    min_size=3,
    max_size=25,
)


@settings(
    max_examples=examples(25, short=5),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
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
@example(  # a file that was begun and written, and is lost, and a later one that must not have its batches
    steps=[
        ("sink", 5, False),
        ("commit", 1, 0),
        ("commit", 1, 0),
        ("crash", 3, 1),
        ("commit", 1, 0),
        ("lose", 1),
        ("lose", 3),
    ]
)
def test_sinks_together_get_what_rest_has(steps: list[tuple[Any, ...]], receiver: Receiver) -> None:
    """Any sequence of batches, sinks, texts, crashes, refusals, full disks and losses."""
    receiver.requests.clear()
    receiver.refusing = 0
    kinds: list[Sink | None] = [
        None,
        FilesSink("a", "ndjson"),
        FilesSink("b/c", "parquet"),
        WebhookSink(f"{receiver.url}/x"),
        WebhookSink(f"{receiver.url}/y"),
        FilesSink("d", "ndjson", batches_per_file=3),
        FilesSink("e", "parquet", batches_per_file=2, max_delay_us=2 * SECOND_US),
    ]
    with tempfile.TemporaryDirectory() as directory, World(Path(directory)) as world:
        present: Sink | None = None
        expected: dict[int, Sink | None] = {}
        lost: set[int] = set()
        world.batches.spacing_us = SECOND_US
        world.delivery.now_us = lambda: world.batches.next * SECOND_US

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
                case ("crash", batches, writes):
                    with dying(world.store, writes):
                        deliver(batches)
                case ("refuse", times):
                    receiver.refusing = times
                case ("restart",):
                    world.delivery.close()
                    now_us, world.delivery = world.delivery.now_us, world.new_delivery()
                    world.delivery.now_us = now_us
                case ("disk",):
                    with without_exports(world):
                        deliver()
                case ("lose", batches):
                    lost |= lose(world, batches)
                case ("drop",):
                    world.store.sinks.drop_spent()
        receiver.refusing = 0
        expected[world.commit(1)] = present  # every version is in force now
        world.delivery.now_us = lambda: 1000 * SECOND_US
        while world.deliver():
            pass
        assert world.store.sinks.pending() == ()
        assert world.store.sinks.oldest_needed_batch() is None
        world.store.sinks.drop_spent()
        assert len(world.store.sinks.all()) <= 1
        rest = world.by_batch()
        for sink in kinds:
            mine = {batch: rest[batch] for batch, of in expected.items() if of == sink and batch in rest}
            if isinstance(sink, FilesSink):
                assert mine.keys() - lost <= batches_of_files(world, sink, mine) <= mine.keys()
            elif isinstance(sink, WebhookSink):
                given = posted(receiver, sink)
                assert given.keys() <= mine.keys()
                for batch, rows in mine.items():
                    # Of one that was lost some parts may have been taken before.
                    got = given.get(batch, [])
                    assert got == (rows[: len(got)] if batch in lost else rows)


COMMIT = st.tuples(st.just("commit"), st.integers(0, 2))
FILE_STEPS = st.lists(
    st.one_of(
        COMMIT,
        COMMIT,
        st.tuples(st.just("deliver"), st.integers(1, 4)),
        st.tuples(st.just("crash"), st.integers(0, 2)),
        st.tuples(st.just("update")),
        st.tuples(st.just("disk")),
        st.tuples(st.just("lose"), st.integers(1, 4)),
    ),
    min_size=5,
    max_size=25,
)


@settings(max_examples=examples(25, short=5), deadline=None)
@given(steps=FILE_STEPS, per_file=st.sampled_from((1, 2, 3)), delay_s=st.integers(0, 2))
@example(  # it dies when the file is there, and the next one could have more batches
    steps=[("commit", 1), ("crash", 1), ("commit", 1)], per_file=3, delay_s=0
)
@example(  # it dies before it is written down which batches the file has
    steps=[("commit", 1), ("crash", 0), ("commit", 1)], per_file=3, delay_s=0
)
def test_files_one_after_the_other_are_what_rest_has(
    steps: list[tuple[Any, ...]], per_file: int, delay_s: int
) -> None:
    """Files of one or several batches, whatever fails at whatever write, less what is counted as lost."""
    sink = FilesSink(
        "x", "ndjson", batches_per_file=per_file, max_delay_us=(per_file > 1) * delay_s * SECOND_US
    )
    with tempfile.TemporaryDirectory() as directory, World(Path(directory)) as world:
        world.batches.spacing_us = SECOND_US
        world.delivery.now_us = lambda: world.batches.next * SECOND_US
        world.set_sink(sink)
        lost: set[int] = set()
        for step in steps:
            match step:
                case ("commit", rows):
                    world.commit(rows)
                case ("deliver", batches):
                    world.deliver(batches)
                case ("crash", writes):
                    with dying(world.store, writes):
                        world.deliver()
                case ("update",):
                    world.update()
                case ("disk",):
                    with without_exports(world):
                        world.deliver()
                case ("lose", batches):
                    lost |= lose(world, batches)
        world.delivery.now_us = lambda: 1000 * SECOND_US
        while world.deliver():
            pass
        rest = world.by_batch()
        there = batches_of_files(world, sink, rest)
        record = world.present()
        assert rest.keys() - lost <= there <= rest.keys()
        assert (record.batches, record.lost) == (len(rest) - len(lost), len(lost))
        assert record.rows + record.lost_rows == sum(map(len, rest.values()))


@contextmanager
def without_exports(world: World) -> Iterator[None]:
    """Have the directory of exports not be one for a while."""
    aside = world.exports.with_name("aside")
    world.exports.mkdir(exist_ok=True)
    world.exports.rename(aside)
    world.exports.write_text("in the way")
    try:
        with suppress(OSError):
            yield
    finally:
        world.exports.unlink()
        aside.rename(world.exports)


def lose(world: World, batches: int) -> set[int]:
    """Let every sink go on without the next batches that wait for it; return what is lost."""
    lost: set[int] = set()
    for record in world.store.sinks.pending():
        assert record.from_batch is not None
        end = world.batches.next if record.until_batch is None else record.until_batch
        first = max(record.from_batch, record.next_batch)
        before = min(end, first + batches)
        waiting = world.store.counts.of_series(record.series, first)
        wanted = [(batch, rows) for batch, _, rows in waiting if batch < before]
        found = world.store.sinks.lose(record, before)
        if found:
            rows = sum(rows for _, rows in wanted) - record.next_row
            assert (found.batches, found.rows, found.last) == (len(wanted), rows, wanted[-1][0])
            lost.update(batch for batch, _ in wanted)
        else:
            assert not wanted or record.file_end is not None
    return lost


def batches_of_files(world: World, sink: FilesSink, mine: dict[int, list[Any]]) -> set[int]:
    """Batches that the files of a sink have; each of them once, and with all rows in order."""
    found: list[int] = []
    for path in sorted((world.exports / sink.path).glob("batch-*")):
        first, *others = (int(part) for part in path.stem.split("-")[1:-1])
        batches = [batch for batch in sorted(mine) if first <= batch <= max([first, *others])]
        assert len(batches) <= sink.batches_per_file
        assert read_file(path) == [row for batch in batches for row in mine[batch]]
        found += batches
    assert found == sorted(set(found)), "a batch appears twice"
    return set(found)
