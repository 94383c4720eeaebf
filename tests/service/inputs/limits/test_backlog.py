"""Backlogs: running numbers that are at any time what a look at the whole log would find."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.stream import Stream
from service.errors import EventLogDown
from service.inputs.limits.backlog import Backlog
from service.inputs.sources.posted.http_log import EventLog
from tests.examples import examples
from tests.service.inputs.streams import stream_of

STREAMS = tuple(stream_of(stream_id=number, name=f"S{number}") for number in (1, 2))

#: What happens: events come, batches read on, old events are dropped, the service starts again.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(STREAMS), st.integers(1, 40)),
        st.tuples(st.just("read"), st.sampled_from(STREAMS), st.integers(0, 4)),
        st.tuples(st.just("drop"), st.sampled_from(STREAMS), st.integers(-3, 3)),
        st.tuples(st.just("restart"), st.sampled_from(STREAMS), st.just(0)),
    ),
    max_size=40,
)


def looked_through(log: EventLog, stream: Stream, position: int) -> Backlog:
    with closing(sqlite3.connect(str(log.file))) as connection:
        rows, size = connection.execute(
            "SELECT coalesce(sum(rows), 0), coalesce(sum(length(data)), 0) FROM blobs"
            " WHERE stream_id = ? AND first_offset >= ?",
            (stream.id, position),
        ).fetchone()
    return Backlog(rows, size)


def ends_of_requests(log: EventLog, stream: Stream, position: int) -> list[int]:
    return [piece.end for piece in log.pieces(stream.id, position, 1000)]


@settings(max_examples=examples(60))
@given(STEPS)
def test_the_numbers_are_those_of_the_whole_log(steps: list[tuple[str, Stream, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = EventLog(Path(directory) / "events.db")
        positions = {stream.id: 0 for stream in STREAMS}
        for what, stream, number in steps:
            if what == "append":
                log.append(stream, [{"ts": n, "k": n} for n in range(number)])
            elif what == "read":  # whole requests, as batches do
                ends = ends_of_requests(log, stream, positions[stream.id])[:number]
                positions[stream.id] = ends[-1] if ends else positions[stream.id]
            elif what == "drop":  # also what no batch has read, as of a stream that was removed
                log.drop_before(stream.id, positions[stream.id] + number)
                positions[stream.id] = max(positions[stream.id], log.begin(stream.id))
            else:
                log.close()
                log = EventLog(Path(directory) / "events.db")
            for each in STREAMS:
                position = positions[each.id]
                assert log.backlog(each, position) == looked_through(log, each, position), (what, each.name)
        log.close()


def test_a_position_that_is_behind_changes_nothing(tmp_path: Path) -> None:
    with closing(EventLog(tmp_path / "events.db")) as log:
        for _ in range(3):
            log.append(STREAMS[0], [{"ts": 1, "k": 1}])
        newest = log.backlog(STREAMS[0], 2)
        assert newest.rows == 1
        assert log.backlog(STREAMS[0], 1) == newest


def test_a_request_that_fails_counts_for_nothing(tmp_path: Path) -> None:
    with closing(EventLog(tmp_path / "events.db")) as log:
        log.append(STREAMS[0], [{"ts": 1, "k": 1}])
        before = log.backlog(STREAMS[0], 0)
        with closing(sqlite3.connect(str(log.file), isolation_level=None)) as other:
            other.execute("CREATE TRIGGER refuse BEFORE UPDATE ON heads BEGIN SELECT RAISE(ABORT, 'no'); END")
        with pytest.raises(EventLogDown):
            log.append(STREAMS[0], [{"ts": 2, "k": 2}])
        assert log.backlog(STREAMS[0], 0) == before == looked_through(log, STREAMS[0], 0)
