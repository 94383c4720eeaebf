"""Retention of input: what may be read again stays, and what was listed is never listed twice."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from catalog.errors import InternalError
from catalog.store.pruning import REPLAYED_BATCHES
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from catalog.values.plan import Plan
from catalog.values.stream import HttpSource, Stream
from service.errors import EventLogDown
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane
from service.inputs.reading.sample import CatalogRows
from service.inputs.sources.listed.files import list_files
from service.inputs.sources.posted.http_log import EventLog
from service.workspace.input_retention import InputRetention
from tests.catalog.examples import commit, manifest
from tests.epochs import begin_epoch
from tests.service.inputs.streams import files_stream, rows_from, stream_of

DAY_US = 24 * 3600 * 1_000_000


class Service:
    """A catalog and its event log, whose batches end where a test says."""

    def __init__(self, store: Store, events: EventLog) -> None:
        self.store, self.events = store, events
        self.known: dict[int, set[str]] = {}
        self.retention = InputRetention(
            store, events, self.known, interval_s=0, files_interval_s=0, sample_rows=0
        )
        self.epoch = begin_epoch(store)
        self.version = 0
        self.batch = 0

    def plan(self, *streams: Stream) -> None:
        self.version += 1
        self.store.control_log.append(plan=Plan(self.version, "mem-opt", streams, ()))

    def commit(self, positions: dict[int, int], batches: int = 1) -> None:
        """Commit batches that end at some positions."""
        for _ in range(batches):
            end = {**{str(i): p for i, p in positions.items()}, "batch": self.batch + 1, "control": 1}
            made = manifest(self.batch, self.epoch)
            made = replace(made, plan_version=self.version, input_end=tuple(sorted(end.items())))
            assert commit(self.store, made)
            self.batch += 1

    def look(self, now_us: int = 0) -> tuple[int, int]:
        return self.retention.run_once(now_us)


@pytest.fixture
def service(store: Store, events: EventLog) -> Service:
    return Service(store, events)


@pytest.fixture
def source_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    directory.mkdir()
    return directory


def numbered(numbers: Iterable[int]) -> list[object]:
    return [{"ts": n, "k": n} for n in numbers]


def numbers_of(service: Service, stream: Stream, start: int, end: int) -> list[int]:
    return service.events.read(stream, start, end, ["k"]).column("k").to_pylist()


def test_events_that_no_batch_can_read_again_go(service: Service) -> None:
    stream = service.store.streams.add(stream_of(stream_id=0))
    service.plan(stream)
    for n in range(0, 100, 10):
        service.events.append(stream, numbered(range(n, n + 10)))
    service.commit({stream.id: 35})
    service.commit({stream.id: 80}, REPLAYED_BATCHES - 1)
    assert service.look() == (0, 0), "the first batch may replay"
    service.commit({stream.id: 80})
    assert service.look() == (30, 0), "the batch after the first begins inside a request"
    assert service.look() == (0, 0)
    assert service.events.begin(stream.id) == 30
    assert numbers_of(service, stream, 35, 100) == list(range(35, 100))
    assert service.events.append(stream, numbered([100])) == (100, 100)
    with pytest.raises(EventLogDown, match="lacks event 29"):
        service.events.pieces(stream.id, 29, 10)
    with pytest.raises(EventLogDown, match="lacks events"):
        service.events.read(stream, 29, 40)


def test_all_events_may_go_and_offsets_go_on(service: Service) -> None:
    stream = service.store.streams.add(stream_of(stream_id=0))
    service.plan(stream)
    service.events.append(stream, numbered(range(10)))
    service.commit({stream.id: 10}, REPLAYED_BATCHES + 1)
    assert service.look() == (10, 0)
    assert service.events.begin(stream.id) == service.events.end(stream.id) == 10
    assert CatalogRows(service.store, service.events).sample(stream, ["k"]) is None
    assert service.events.append(stream, numbered([10])) == (10, 10)
    assert [p.position for p in service.events.pieces(stream.id, 10, 9)] == [10]


def test_the_newest_events_stay_for_samples(service: Service) -> None:
    stream = service.store.streams.add(stream_of(stream_id=0))
    service.plan(stream)
    for n in range(20):
        service.events.append(stream, numbered([n]))
    service.commit({stream.id: 20}, REPLAYED_BATCHES + 1)
    service.retention.sample_rows = 7
    assert service.look() == (13, 0)
    sample = CatalogRows(service.store, service.events).sample(stream, ["k"])
    assert sample is not None
    assert sample.table.column("k").to_pylist() == list(range(13, 20))


def test_a_stream_that_no_query_has_used_keeps_its_events(service: Service) -> None:
    used = service.store.streams.add(stream_of(stream_id=0))
    unused = service.store.streams.add(stream_of(stream_id=0, name="U"))
    service.plan(used)
    for stream in (used, unused):
        service.events.append(stream, numbered(range(10)))
    service.commit({used.id: 10}, REPLAYED_BATCHES + 1)
    assert service.look() == (10, 0)
    assert numbers_of(service, unused, 0, 10) == list(range(10))


@pytest.mark.parametrize("moved", [True, False])
def test_input_of_a_removed_stream_goes_once_no_plan_reads_it(
    service: Service, source_dir: Path, moved: bool
) -> None:
    pq.write_table(rows_from(0, 5), source_dir / "1.parquet")
    posted = service.store.streams.add(stream_of(stream_id=0))
    files = service.store.streams.add(replace(files_stream(source_dir), id=0, name="F"))
    service.events.append(posted, numbered(range(10)))
    list_files(service.store, files)
    service.plan(posted, files)
    positions = {posted.id: 10, files.id: 1} if moved else {}
    service.commit(positions, REPLAYED_BATCHES + 1)
    for stream in (posted, files):
        service.store.streams.remove(stream.name)
    service.look()
    service.commit(positions, 3)  # these do not know yet
    service.plan()
    service.commit({}, REPLAYED_BATCHES)
    service.look()
    assert service.store.source_files.count(files.id) == 1, "the last batch that read it may replay"
    service.commit({})
    service.look()
    assert service.events.begin(posted.id) == 10
    assert service.store.source_files.count(files.id) == 0
    assert service.look() == (0, 0)
    assert service.events.known_ids() == ()
    assert service.store.pruning.prune().streams == 2


def test_what_was_kept_apart_of_a_removed_stream_goes(service: Service) -> None:
    now_us = wall_clock_us()
    live, removed = (service.store.streams.add(stream_of(stream_id=0, name=n)) for n in ("L", "R"))
    for stream in (live, removed):
        service.events.append(replace(stream, max_ahead_us=0), [{"ts": now_us + DAY_US, "k": 1}])
    service.plan(live)
    service.store.streams.remove("R")
    service.commit({}, REPLAYED_BATCHES + 1)
    service.look()
    assert service.events.known_ids() == (live.id, removed.id)
    service.commit({}, REPLAYED_BATCHES)
    service.look()
    assert service.events.known_ids() == (live.id,)
    assert service.events.quarantined(live, 10)[0] == 1


def listed_names(service: Service, stream: Stream) -> list[str]:
    return [Path(f.path).stem for f in service.store.source_files.page(stream.id)]


def test_a_file_is_forgotten_a_day_after_it_has_gone(service: Service, source_dir: Path) -> None:
    stream = service.store.streams.add(replace(files_stream(source_dir), id=0))
    service.plan(stream)
    known = service.known.setdefault(stream.id, set())
    for n in range(4):
        pq.write_table(rows_from(n, 1), source_dir / f"{n}.parquet")
    assert list_files(service.store, stream, known=known) == 4
    service.commit({stream.id: 2})
    service.commit({stream.id: 4}, REPLAYED_BATCHES)
    for n in (0, 1, 2):
        (source_dir / f"{n}.parquet").unlink()
    assert service.look(0) == (0, 0)
    assert service.look(DAY_US - 1) == (0, 0)
    pq.write_table(rows_from(1, 1), source_dir / "1.parquet")
    assert service.look(DAY_US) == (0, 1)
    assert listed_names(service, stream) == ["1", "2", "3"], "1 came back in time, 2 may be read again"
    pq.write_table(rows_from(0, 1), source_dir / "0.parquet")
    assert list_files(service.store, stream, known=known) == 1
    assert listed_names(service, stream) == ["1", "2", "3", "0"]
    service.commit({stream.id: 5}, REPLAYED_BATCHES + 1)
    assert service.look(2 * DAY_US) == (0, 1)
    with pytest.raises(InternalError, match='file 0 of stream "S" is not in the listing'):
        Inputs(service.store, None).pending(Lane(stream), 0, 10)
    with pytest.raises(InternalError, match='file 2 of stream "S" is not in the listing'):
        Inputs(service.store, None).partitions([(Lane(stream), 2, 5)])
    assert [p.position for p in Inputs(service.store, None).pending(Lane(stream), 3, 9)] == [3, 4]


def test_nothing_is_forgotten_while_the_file_system_is_away(service: Service, tmp_path: Path) -> None:
    directory = tmp_path / "mounted"
    directory.mkdir()
    stream = service.store.streams.add(replace(files_stream(directory), id=0))
    service.plan(stream)
    for n in range(3):
        pq.write_table(rows_from(n, 1), directory / f"{n}.parquet")
    list_files(service.store, stream)
    service.commit({stream.id: 3}, REPLAYED_BATCHES + 1)
    directory.rename(tmp_path / "away")
    for day in range(3):
        assert service.look(day * DAY_US) == (0, 0)
    directory.mkdir()
    assert service.look(4 * DAY_US) == (0, 0)
    directory.rmdir()
    (tmp_path / "away").rename(directory)
    assert service.look(5 * DAY_US) == (0, 0)
    assert list_files(service.store, stream) == 0


def test_the_newest_file_is_never_forgotten(service: Service, source_dir: Path) -> None:
    stream = service.store.streams.add(replace(files_stream(source_dir), id=0))
    service.plan(stream)
    for n in range(3):
        pq.write_table(rows_from(n, 1), source_dir / f"{n}.parquet")
    list_files(service.store, stream)
    service.commit({stream.id: 3}, REPLAYED_BATCHES + 1)
    (source_dir / "1.parquet").unlink()
    (source_dir / "2.parquet").unlink()
    service.look(0)
    assert service.look(DAY_US) == (0, 1)
    assert listed_names(service, stream) == ["0", "2"]
    pq.write_table(rows_from(3, 1), source_dir / "3.parquet")
    list_files(service.store, stream)
    assert service.store.source_files.count(stream.id) == 4


def test_every_batch_that_may_replay_reads_what_it_read(store: Store, events: EventLog) -> None:
    """Random posts, batches and looks: from any batch that may replay on all events are there."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    service = Service(store, events)
    streams = [store.streams.add(stream_of(HttpSource(), stream_id=0, name=n)) for n in "ABC"]
    service.plan(*streams)
    ends = {stream.id: 0 for stream in streams}
    at_end: list[dict[int, int]] = []
    for _ in range(150):
        for stream in streams:
            if rng.random() < 0.7:
                first = ends[stream.id]
                count = rng.randint(1, 5)
                assert events.append(stream, numbered(range(first, first + count)))[0] == first
                ends[stream.id] += count
        before = at_end[-1] if at_end else dict.fromkeys(ends, 0)
        moved = {i: rng.randint(before[i], end) for i, end in ends.items()}
        at_end.append(moved)
        service.commit({i: p for i, p in moved.items() if p})
        if rng.random() < 0.5:
            service.retention.sample_rows = rng.choice([0, 0, 3, 50])
            service.look()
        oldest = max(service.batch - 1 - REPLAYED_BATCHES, 0)
        for stream in streams:
            start = at_end[oldest][stream.id] if service.batch > REPLAYED_BATCHES else 0
            assert numbers_of(service, stream, start, ends[stream.id]) == list(range(start, ends[stream.id]))
    assert sum(events.begin(stream.id) for stream in streams) > 100, "hardly anything was dropped"
