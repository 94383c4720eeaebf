"""The source under a Spark that crashes: every event in one batch, the same one whenever it is replayed.

`Spark` does with the source what Spark does, in the same order, and dies where it is told to. Between two of
its questions events and changes come.

    python -m pytest tests/service/job/test_replayed_batches.py --hypothesis-seed=N
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errors import FencedOut, InternalError
from catalog.store.store import Store
from catalog.values.plan import Plan
from catalog.values.source_file import SourceFile
from catalog.values.stream import FilesSource, HttpSource, Stream
from operators.storage.folder import folder_text
from service.inputs.reading.voided import VoidedInput
from service.inputs.sources.posted.http_log import EventLog
from service.job.reader_tasks import PackPartition
from service.job.source import SluiceReader
from tests.catalog.examples import manifest
from tests.crash.disks import tmpfs
from tests.empty_catalog import prepared
from tests.epochs import begin_epoch
from tests.examples import examples
from tests.service.inputs.streams import stream_of

Death = Literal["before the offset log", "after the offset log", "while it reads"]
#: Positions [start, end) of each stream, by id.
Ranges = dict[int, tuple[int, int]]


@dataclass
class Spark:
    """What Spark keeps, and a catalog and an event log beside it.

    Attributes:
        directory: Of both.
        max_rows: Rows of a batch.
        min_free_mb: Space that is to be free, as the job's options have it.
        offsets: The offset log: ends of batches.
        read: What the readers of each committed batch read.
        changed: Of each event, by stream and offset: the last change before it was posted.
    """

    directory: Path
    store: Store
    events: EventLog
    max_rows: int = 1000
    min_free_mb: str = "0"
    epoch: int = 0
    offsets: list[dict[str, int]] = field(default_factory=list)
    read: list[Ranges] = field(default_factory=list)
    changed: dict[tuple[int, int], int] = field(default_factory=dict)
    streams: list[Stream] = field(default_factory=list)
    reader: SluiceReader | None = None

    def add_stream(self, source: Any = None) -> Stream:
        """Add a stream, of events unless told otherwise, and have it in the next plan."""
        name = f"S{len(self.streams)}"
        stream = self.store.streams.add(stream_of(source or HttpSource(), name=name, stream_id=0))
        self.streams.append(stream)
        self.change()
        return stream

    def change(self) -> None:
        """Put a plan version on record."""
        version = self.store.control_log.head() + 1
        self.store.control_log.append(plan=Plan(version, "mem-opt", tuple(self.streams), ()))

    def post(self, stream: Stream, count: int) -> None:
        """Post events in one request."""
        first, last = self.events.append(stream, [{"ts": n, "k": n} for n in range(count)])
        for offset in range(first, last + 1):
            self.changed[stream.id, offset] = self.store.control_log.head()

    def start(self) -> None:
        """Start another engine: a batch that was logged and not committed is replayed."""
        self.epoch = begin_epoch(self.store)
        options = {
            "catalog_url": f"sqlite:///{self.directory / 'catalog.db'}",
            "events_url": f"sqlite:///{self.directory / 'events.db'}",
            "data_dir": str(self.directory),
            "engine_lock": str(self.directory / "lock"),
            "epoch": str(self.epoch),
            "dead_letters": folder_text(self.directory / "dead"),
            "bucket_keys": "0,1",
            "max_rows": str(self.max_rows),
            "min_free_mb": self.min_free_mb,
        }
        self.reader = SluiceReader(options)
        if len(self.offsets) > len(self.read):
            self.commit(self.partitions())

    def latest(self) -> dict[str, int]:
        """Ask for the end of the next batch."""
        assert self.reader is not None
        start = self.offsets[-1] if self.offsets else self.reader.initialOffset()
        # Without waiting for news.
        end = self.reader._next(start)
        return {} if end == start else end

    def partitions(self) -> Ranges:
        """Ask what is read of the last batch in the log."""
        assert self.reader is not None
        before = self.offsets[-2] if len(self.offsets) > 1 else self.reader.initialOffset()
        assert self.reader.partitions(before, before) == []
        pieces: dict[int, list[tuple[int, int]]] = {}
        for partition in self.reader.partitions(before, self.offsets[-1]):
            if isinstance(partition, PackPartition):
                piece: Any = partition.piece
                ends = (
                    (piece.files[0].position, piece.files[-1].position + 1) if piece.kind == "files" else ()
                )
                pieces.setdefault(piece.stream_id, []).append(ends or (piece.start, piece.end))
        for found in pieces.values():
            assert all(one[1] == other[0] for one, other in itertools.pairwise(found))
        return {stream_id: (found[0][0], found[-1][1]) for stream_id, found in pieces.items()}

    def commit(self, ranges: Ranges) -> None:
        """Commit the batch in hand, after the rows that it leaves out are kept."""
        assert self.reader is not None
        batch = len(self.read)
        before = self.offsets[batch - 1] if batch else self.reader.initialOffset()
        events_url = f"sqlite:///{self.directory / 'events.db'}"
        VoidedInput(self.store, self.directory / "dead", events_url)(batch, before, self.offsets[batch])
        end = tuple(sorted(self.offsets[len(self.read)].items()))
        self.store.batches.commit(replace(manifest(len(self.read), self.epoch), input_end=end))
        self.read.append(ranges)

    def batch(self, between: tuple[int, ...] = (), death: Death | None = None, change: bool = False) -> None:
        """Run a batch, if there is anything to do: so many events a stream come while it is planned.

        Args:
            between: Events of each stream that come after its offset was asked for.
            death: Where the engine dies, and another one takes over.
            change: Whether a change is put on record before those events.
        """
        end = self.latest()
        if not end:
            return
        if change:
            self.change()
        for stream, count in zip(self.streams, between, strict=False):
            self.post(stream, count)
        if death == "before the offset log":
            self.start()
            return
        self.offsets.append(end)
        if death == "after the offset log":
            self.start()
            return
        ranges = self.partitions()
        if death is None:
            self.commit(ranges)
            return
        for stream in self.streams:
            self.post(stream, 1)
        self.start()
        assert self.read[-1] == ranges, "a replayed batch reads something else"


@contextmanager
def spark(directory: Path, max_rows: int = 1000) -> Iterator[Spark]:
    """A Spark that has started, with an empty catalog."""
    with Store.open(prepared(f"sqlite:///{directory / 'catalog.db'}")) as store:
        events = EventLog(directory / "events.db")
        (directory / "lock").touch()
        made = Spark(directory, store, events, max_rows)
        made.start()
        yield made
        events.close()


def assert_each_event_once(found: Spark) -> None:
    """Every event is in one batch, in order, and in none before the change that it came after."""
    for stream in found.streams:
        position = 0
        for batch, ranges in enumerate(found.read):
            start, end = ranges.get(stream.id, (position, position))
            assert start == position, f"batch {batch} starts at {start} instead of {position}"
            control = found.offsets[batch]["control"]
            for offset in range(start, end):
                assert found.changed[stream.id, offset] <= control, f"event {offset} overtook a change"
            position = end
        assert position == found.events.end(stream.id)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Any, ...]:
    """Events that wait, those that come meanwhile, where it dies, and whether a change comes meanwhile."""
    counts = st.tuples(st.integers(0, 3), st.integers(0, 3))
    deaths = st.sampled_from(
        [None, None, None, "before the offset log", "after the offset log", "while it reads"]
    )
    return draw(counts), draw(counts), draw(deaths), draw(st.integers(0, 4)) == 0


@settings(max_examples=examples(60, short=7))
@given(st.lists(batches(), min_size=3, max_size=12), st.sampled_from([1, 2, 4, 1000]))
def test_every_event_is_read_once_whatever_comes_and_dies(
    steps: list[tuple[Any, ...]], max_rows: int
) -> None:
    with tempfile.TemporaryDirectory() as directory, spark(Path(directory), max_rows) as run:
        run.add_stream()
        run.add_stream()
        for waiting, between, death, change in steps:
            for stream, count in zip(run.streams, waiting, strict=True):
                run.post(stream, count)
            run.batch(between, death, change)
        while len(run.offsets) < 1000 and run.latest():
            run.batch()
        assert_each_event_once(run)


def test_what_comes_while_a_batch_is_planned_is_in_the_next_one(tmp_path: Path) -> None:
    with spark(tmp_path) as run:
        a, b = run.add_stream(), run.add_stream()
        run.post(a, 2)
        run.batch(between=(1, 4))
        assert run.offsets[0] == {str(a.id): 2, "batch": 1, "control": 2}
        assert run.read == [{a.id: (0, 2)}]
        run.batch()
        assert run.offsets[1] == {str(a.id): 3, str(b.id): 4, "batch": 2, "control": 2}
        assert run.read[1] == {a.id: (2, 3), b.id: (0, 4)}


def test_a_stream_of_so_many_files_a_batch_takes_no_more(tmp_path: Path) -> None:
    with spark(tmp_path) as run:
        files = run.add_stream(FilesSource("parquet", "/S", 1))
        http = run.add_stream()
        run.store.source_files.append(files.id, [SourceFile(0, f"/S/{n}", 1, 1, 10, n, n) for n in range(3)])
        run.post(http, 1)
        run.batch(between=(0, 0))
        assert run.read == [{files.id: (0, 1), http.id: (0, 1)}]


def test_a_batch_that_sparks_log_has_lost_has_the_input_that_it_had(tmp_path: Path) -> None:
    with spark(tmp_path) as run:
        stream = run.add_stream()
        for count in (2, 3):
            run.post(stream, count)
            run.batch()
        lost, read = run.offsets.pop(), run.read.pop()
        run.post(stream, 4)
        run.start()
        assert run.latest() == lost
        run.offsets.append(lost)
        assert run.partitions() == read
        run.read.append(read)
        assert run.latest() == lost | {str(stream.id): 9, "batch": 3}


def test_a_batch_is_not_begun_without_input_that_only_an_older_catalog_lacks(tmp_path: Path) -> None:
    with spark(tmp_path) as run:
        run.post(run.add_stream(), 2)
        run.batch()
        run.store.batches.commit(manifest(1, run.epoch))
        run.start()
        with pytest.raises(InternalError, match="batch 1 is committed, but its input is neither"):
            run.latest()


def test_an_engine_that_was_replaced_begins_no_batch(tmp_path: Path) -> None:
    with spark(tmp_path) as run:
        run.post(run.add_stream(), 2)
        begin_epoch(run.store)
        with pytest.raises(FencedOut, match="batch 0 cannot begin under epoch 1: the current epoch is 2"):
            run.latest()


@pytest.mark.mounts
def test_input_waits_for_space_and_changes_do_not(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 64) as disk, spark(disk.root) as found:
        stream = found.add_stream()
        found.post(stream, 3)
        found.batch()
        found.min_free_mb = "16"
        found.start()
        disk.fill(7 << 20)
        found.post(stream, 5)
        assert found.latest() == {}
        found.change()
        found.batch()  # the change alone
        assert found.offsets[-1]["control"] == found.store.control_log.head()
        assert found.read[-1] == {}
        found.post(stream, 1)
        assert found.latest() == {}
        disk.clear()
        found.start()  # a look at the disk without waiting for a second
        found.batch()
        assert found.read[-1] == {stream.id: (3, 9)}
        assert_each_event_once(found)


@pytest.mark.mounts
def test_a_batch_that_was_begun_is_repeated_on_a_disk_without_space(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 64) as disk, spark(disk.root) as found:
        stream = found.add_stream()
        found.post(stream, 3)
        found.offsets.append(found.latest())
        found.min_free_mb = "16"
        disk.fill(7 << 20)
        found.start()  # repeats it
        assert found.read == [{stream.id: (0, 3)}]
