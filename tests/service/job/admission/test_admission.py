from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.store.store import Store
from catalog.values.source_file import SourceFile
from catalog.values.stream import FilesSource, GeneratorSource, Stream
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane
from service.inputs.sources.listed.files import list_files
from service.inputs.sources.posted.http_log import EventLog
from service.job.admission.admission import admit
from tests.empty_catalog import prepared
from tests.examples import examples
from tests.service.inputs.streams import files_stream, rows_from, stream_of

Files = Sequence[tuple[int, int | None, int | None]]  # rows, oldest and newest event time


def listed(store: Store, name: str, files: Files, *, max_files: int | None = None) -> Stream:
    """A stream whose files are listed, though nobody reads them."""
    source = FilesSource("parquet", f"/{name}", max_files)
    stream = store.streams.add(stream_of(source, stream_id=0, name=name))
    store.source_files.append(
        stream.id,
        [SourceFile(0, f"/{name}/{i}", 1, 1, rows, low, high) for i, (rows, low, high) in enumerate(files)],
    )
    return stream


def batches(
    store: Store, streams: Sequence[Stream], max_rows: int, positions: Mapping[str, int] | None = None
) -> list[tuple[int, ...]]:
    """Positions after each batch, up to the end of all input."""
    inputs, found = Inputs(store, None), []
    now = dict(positions or {})
    lanes = [Lane(stream) for stream in streams]
    while (then := admit(lanes, now, inputs, max_rows=max_rows).positions) != now:
        found.append(tuple(then[lane.key] for lane in lanes))
        now = then
    return found


def test_streams_advance_together_in_event_time(store: Store) -> None:
    a = listed(store, "A", [(10, 0, 9), (10, 10, 19), (10, 20, 29)])
    b = listed(store, "B", [(10, 0, 14), (10, 15, 29)])
    assert batches(store, [a, b], 10) == [(1, 0), (1, 1), (2, 1), (3, 1), (3, 2)]
    assert batches(store, [a, b], 20) == [(1, 1), (3, 1), (3, 2)]
    assert batches(store, [a, b], 10**9) == [(3, 2)]


def test_an_explicit_number_of_files_is_taken_as_it_is(store: Store) -> None:
    a = listed(store, "A", [(1000, t, t) for t in range(5)], max_files=2)
    b = listed(store, "B", [(10, t, t) for t in range(3)])
    assert batches(store, [a, b], 10) == [(2, 1), (4, 2), (5, 3)]


def test_a_piece_larger_than_the_batch_is_admitted_alone(store: Store) -> None:
    a = listed(store, "A", [(500, 0, 9), (5, 10, 11)])
    assert batches(store, [a], 10) == [(1,), (2,)]


def test_a_stream_that_lags_does_not_hold_the_others_when_it_has_nothing(store: Store) -> None:
    a = listed(store, "A", [(10, 1000, 1009)])
    b = listed(store, "B", [])
    assert batches(store, [a, b], 100) == [(1, 0)]


def test_pieces_without_event_times_go_first(store: Store) -> None:
    a = listed(store, "A", [(10, 0, 9), (0, None, None), (0, None, None)])
    b = listed(store, "B", [(0, None, None), (10, 5, 20)])
    assert batches(store, [a, b], 10) == [(3, 1), (3, 2)]


def test_an_unknown_position_is_the_initial_one(store: Store, events: EventLog) -> None:
    stream = stream_of(GeneratorSource(1000.0, rows=200_000, start_us=0))
    late = Stream(2, "late", stream.columns, "ts", 0, stream.source, initial_position=4)
    inputs = Inputs(store, events)
    assert admit([Lane(stream), Lane(late)], {}, inputs, max_rows=1).positions == {"1": 1, "2": 4}
    assert admit([Lane(late)], {}, inputs, max_rows=1).positions == {"2": 5}


def test_generators_files_and_events_are_aligned_with_each_other(
    store: Store, events: EventLog, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    files = store.streams.add(files_stream(folder))
    for i in range(4):
        pq.write_table(rows_from(i * 10_000_000, 10), folder / f"{i}.parquet")
    list_files(store, files)
    posted = stream_of(stream_id=50)
    for i in range(8):
        events.append(posted, [{"ts": i * 5_000_000}])
    chunks = stream_of(GeneratorSource(1.0, rows=40, start_us=0), stream_id=51)
    inputs = Inputs(store, events)
    lanes = [Lane(files), Lane(posted), Lane(chunks)]
    now: dict[str, int] = {}
    frontiers = []
    while (then := admit(lanes, now, inputs, max_rows=12).positions) != now:
        now = then
        frontiers.append(tuple(now[lane.key] for lane in lanes))
    assert frontiers[0] == (1, 2, 0)
    assert frontiers[-1] == (4, 8, 1)


@settings(max_examples=examples(25), deadline=None)
@given(
    files=st.lists(
        st.lists(st.tuples(st.integers(0, 30), st.integers(0, 100)), max_size=8), min_size=1, max_size=3
    ),
    max_rows=st.integers(1, 60),
)
def test_nothing_stalls_and_no_stream_runs_ahead(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[tuple[int, int]]], max_rows: int
) -> None:
    newest = [sorted(t for _, t in stream) for stream in files]
    with Store.open(prepared(f"sqlite:///{tmp_path_factory.mktemp('catalog') / 'catalog.db'}")) as store:
        streams = [
            listed(store, f"S{i}", [(rows, t, t) for (rows, _), t in zip(stream, newest[i], strict=True)])
            for i, stream in enumerate(files)
        ]
        found = batches(store, streams, max_rows)
    before = (0,) * len(files)
    for after in found:
        taken = [rows for i, stream in enumerate(files) for rows, _ in stream[before[i] : after[i]]]
        assert sum(taken) <= max_rows or sum(rows > 0 for rows in taken) == 1
        for i, end in enumerate(after):
            for other, position in enumerate(after):
                if end > before[i] and position < len(files[other]):
                    assert newest[i][end - 1] <= newest[other][position]
        before = after
    assert before == tuple(len(stream) for stream in files)
