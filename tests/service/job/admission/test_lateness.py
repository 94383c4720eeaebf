"""Whether no row can be late, against every way to cut the input."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.store.store import Store
from catalog.values.source_file import SourceFile
from catalog.values.stream import FilesSource, GeneratorSource, Stream
from service.inputs.inputs import Inputs
from service.inputs.sources.posted.http_log import EventLog
from service.job.admission.lateness import none_can_be_late
from tests.empty_catalog import prepared
from tests.examples import examples
from tests.service.inputs.streams import stream_of


def listed(store: Store, pieces: list[tuple[int, int | None, int | None]], lateness_us: int) -> Stream:
    """A stream of files: rows, oldest and newest event time."""
    stream = replace(stream_of(FilesSource("parquet", "/S"), stream_id=0), lateness_us=lateness_us)
    stream = store.streams.add(stream)
    store.source_files.append(
        stream.id,
        [SourceFile(0, f"/S/{i}", 1, 1, rows, low, high) for i, (rows, low, high) in enumerate(pieces)],
    )
    return stream


def test_files_in_order_have_no_late_rows(store: Store) -> None:
    stream = listed(store, [(5, 0, 9), (5, 9, 20), (0, None, None), (5, 21, 22)], 0)
    assert none_can_be_late(stream, Inputs(store, None))


def test_disorder_within_the_lateness_is_not_late(store: Store) -> None:
    stream = listed(store, [(5, 0, 15), (5, 10, 30), (5, 26, 29), (5, 25, 40)], 5)
    assert none_can_be_late(stream, Inputs(store, None))


def test_disorder_beyond_the_lateness_may_be_late(store: Store) -> None:
    stream = listed(store, [(5, 0, 15), (5, 10, 30), (5, 26, 29), (5, 24, 40)], 5)
    assert not none_can_be_late(stream, Inputs(store, None))


def test_a_file_whose_times_are_not_known_may_have_late_rows(store: Store) -> None:
    assert not none_can_be_late(listed(store, [(5, 0, 15), (5, None, None)], 5), Inputs(store, None))


def test_a_file_before_the_stream_begins_does_not_count(store: Store) -> None:
    stream = listed(store, [(5, 100, 200), (5, 0, 15), (5, 16, 20)], 0)
    assert not none_can_be_late(stream, Inputs(store, None))
    assert none_can_be_late(replace(stream, initial_position=1), Inputs(store, None))


def test_generated_rows_come_in_order(store: Store, events: EventLog) -> None:
    stream = stream_of(GeneratorSource(1000.0, rows=200_000, start_us=0))
    assert none_can_be_late(stream, Inputs(store, events))


@settings(max_examples=examples(25), deadline=None)
@given(
    times=st.lists(
        st.lists(st.integers(0, 30), min_size=1, max_size=3).map(lambda t: (min(t), max(t))), max_size=6
    ),
    lateness_us=st.integers(0, 10),
)
def test_the_answer_is_that_of_every_cut(
    tmp_path_factory: pytest.TempPathFactory, times: list[tuple[int, int]], lateness_us: int
) -> None:
    with Store.open(prepared(f"sqlite:///{tmp_path_factory.mktemp('catalog') / 'catalog.db'}")) as store:
        stream = listed(store, [(2, low, high) for low, high in times], lateness_us)
        found = none_can_be_late(stream, Inputs(store, None))
    late = False
    for count in range(len(times)):
        for cuts in combinations(range(1, len(times)), count):
            edges = [0, *cuts, len(times)]
            watermark = None
            for start, end in pairwise(edges):
                batch = times[start:end]
                late |= watermark is not None and any(low < watermark for low, _ in batch)
                seen = max(high for _, high in times[:end])
                watermark = seen - lateness_us
    assert found == (not late)
