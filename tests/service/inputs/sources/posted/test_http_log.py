from __future__ import annotations

import datetime as dt
import itertools
import multiprocessing
import os
import pickle
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from catalog.errors import IdempotencyKeyReused
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from service.errors import EventLogDown, EventRejected
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane
from service.inputs.reading.read import read_partition
from service.inputs.sources.posted import http_log
from service.inputs.sources.posted.event_reader import read_events
from service.inputs.sources.posted.http_log import EventLog, Sending
from tests.catalog.processes import SPAWN
from tests.examples import examples
from tests.service.inputs.streams import EVERY_TYPE, stream_of

STREAM = stream_of()


def numbered(first: int, count: int) -> list[object]:
    return [{"ts": n, "k": n} for n in range(first, first + count)]


def test_events_get_offsets_and_come_back(either_events: EventLog) -> None:
    assert either_events.append(STREAM, numbered(0, 3)) == (0, 2)
    assert either_events.append(STREAM, numbered(3, 1)) == (3, 3)
    assert either_events.append(STREAM, []) == (4, 3)
    assert either_events.append(stream_of(stream_id=2), numbered(0, 1)) == (0, 0)
    assert either_events.end(STREAM.id) == 4
    table = either_events.read(STREAM, 1, 4)
    assert table.schema.names == ["ts", "k", "v", "_pos"]
    assert table.column("k").to_pylist() == table.column("_pos").to_pylist() == [1, 2, 3]
    assert either_events.read(STREAM, 4, 4).num_rows == 0


def test_a_request_that_is_sent_again_is_stored_once(either_events: EventLog) -> None:
    first, second = Sending("k1", "print"), Sending("k2", "print")
    assert either_events.append(STREAM, numbered(0, 3), first) == (0, 2)
    assert either_events.append(STREAM, numbered(3, 2), second) == (3, 4)
    for _ in range(2):
        assert either_events.append(STREAM, numbered(0, 3), first) == (0, 2)
    with pytest.raises(IdempotencyKeyReused, match='idempotency key "k1" was used for another request'):
        either_events.append(STREAM, numbered(0, 3), Sending("k1", "other"))
    assert either_events.append(STREAM, numbered(5, 1)) == (5, 5)
    assert either_events.read(STREAM, 0, 6).column("k").to_pylist() == list(range(6))


def test_every_type_comes_back_as_it_was_posted(either_events: EventLog) -> None:
    stream = stream_of(columns=EVERY_TYPE)
    moment = dt.datetime(2013, 1, 1, 5, 15)
    either_events.append(
        stream,
        [
            {
                "ts": "2013-01-01T05:15:00Z",
                "b": True,
                "i": -(2**31),
                "l": 2**63 - 1,
                "x": 1,
                "s": "é",
                "d": "2013-02-28",
                "m": 0.1,
            },
            {"ts": "2013-01-01T00:15:00.000000-05:00", "x": "-Infinity", "m": "12345678.9"},
            {"ts": 1357017300000000, "x": 1e300, "m": -7, "s": ""},
        ],
    )
    nothing = dict.fromkeys(("b", "i", "l", "s", "d"))
    assert either_events.read(stream, 0, 3).to_pylist() == [
        {
            "ts": moment,
            "b": True,
            "i": -(2**31),
            "l": 2**63 - 1,
            "x": 1.0,
            "s": "é",
            "d": dt.date(2013, 2, 28),
            "m": Decimal("0.10"),
            "_pos": 0,
        },
        {"ts": moment, **nothing, "x": float("-inf"), "m": Decimal("12345678.90"), "_pos": 1},
        {"ts": moment, **nothing, "x": 1e300, "m": Decimal(-7), "s": "", "_pos": 2},
    ]


MISFITS = [
    ("b", 1),
    ("i", 2**31),
    ("i", 1.0),
    ("i", True),
    ("i", "1"),
    ("l", 2**63),
    ("x", "1.5"),
    ("x", True),
    ("x", 10**400),
    ("s", 5),
    ("s", "\ud800"),
    ("s", ["x"]),
    ("d", "2013-02-29"),
    ("d", 5),
    ("m", 1.555),
    ("m", 123456789),
    ("m", "one"),
    ("m", "NaN"),
    ("m", float("inf")),
    ("ts", "yesterday"),
    ("ts", "20130101"),
    ("ts", 1.5),
    ("ts", 2**62),
    ("ts", None),
    ("ts", {}),
]


@pytest.mark.parametrize(("field", "value"), MISFITS, ids=lambda case: repr(case)[:20])
def test_a_value_that_does_not_fit_refuses_the_whole_request(
    either_events: EventLog, field: str, value: object
) -> None:
    stream = stream_of(columns=EVERY_TYPE)
    good = {"ts": 5, "x": 0.5, "m": "1.5"}
    with pytest.raises(EventRejected) as caught:
        either_events.append(stream, [good, good, {**good, field: value}, {**good, field: value}, good])
    assert (caught.value.index, caught.value.field) == (2, field)
    assert caught.value.path == ("events", 2, field)
    assert either_events.end(stream.id) == 0


def test_a_rejected_event_is_told_with_what_to_write(either_events: EventLog) -> None:
    with pytest.raises(EventRejected) as caught:
        either_events.append(STREAM, [{"ts": 1}, {"ts": 2, "k": "seven"}])
    assert str(caught.value) == (
        'event 1, field "k": "seven" is not a bigint\n  detail: Expected an integer of 64 bits.'
    )
    with pytest.raises(EventRejected) as caught:
        either_events.append(STREAM, [{"ts": 1, "kk": 7}])
    assert str(caught.value) == (
        'event 0 has a field "kk" that is not a column of stream "S"\n'
        "  detail: Expected only the fields ts, k, v.\n"
        '  hint: Did you mean "k"?'
    )
    with pytest.raises(EventRejected, match="event 2, field"):  # the first event, not the first column
        either_events.append(
            STREAM, [{"ts": 1}, {"ts": 1}, {"ts": 1, "v": "x"}, {"ts": "x", "k": "y"}, {"z": 1}, 5]
        )
    with pytest.raises(EventRejected, match="event 1 is not an object but 5"):
        either_events.append(STREAM, [{"ts": 1}, 5])
    with pytest.raises(EventRejected, match='event 0 has no event time in field "ts"'):
        either_events.append(STREAM, [{"k": 1}])


def test_concurrent_appends_leave_no_gaps_and_keep_each_request_together(either_events: EventLog) -> None:
    def post(client: int) -> list[tuple[int, int, int]]:
        sizes = [1 + (client + turn) % 4 for turn in range(12)]
        return [(client, *either_events.append(STREAM, [{"ts": 1, "k": client}] * size)) for size in sizes]

    with ThreadPoolExecutor(6) as pool:
        receipts = sorted((r for found in pool.map(post, range(6)) for r in found), key=lambda r: r[1])
    expected = 0
    for _, first, last in receipts:
        assert first == expected
        expected = last + 1
    assert either_events.end(STREAM.id) == expected
    keys = either_events.read(STREAM, 0, expected).column("k").to_pylist()
    assert all(keys[first : last + 1] == [client] * (last + 1 - first) for client, first, last in receipts)


def _append_until_killed(path: str, acknowledged: multiprocessing.connection.Connection) -> None:
    log = EventLog(path)
    n = 0
    while True:
        n = log.append(STREAM, numbered(n, 3))[1] + 1
        acknowledged.send(n)


def test_acknowledged_events_survive_a_kill_and_readers_need_no_writer(tmp_path: Path) -> None:
    path = str(tmp_path / "events.db")
    here, there = multiprocessing.Pipe(duplex=False)
    process = SPAWN.Process(target=_append_until_killed, args=(path, there))
    process.start()
    there.close()
    for _ in range(20):
        acknowledged = here.recv()
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    while True:
        try:
            acknowledged = here.recv()
        except EOFError:
            break
    here.close()
    # As a worker that outlives the service would: read-only, nobody else has the file open.
    assert read_events(path, STREAM, 0, acknowledged).column("k").to_pylist() == list(range(acknowledged))
    log = EventLog(path)
    head = log.end(STREAM.id)
    assert head >= acknowledged
    assert head % 3 == 0
    assert log.append(STREAM, numbered(head, 2)) == (head, head + 1)
    log.close()
    assert read_events(path, STREAM, head, head + 2).column("k").to_pylist() == [head, head + 1]


@settings(max_examples=examples(30), deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8),
    shared=st.integers(1, 12),
    cuts=st.lists(st.integers(0, 40), max_size=4),
)
def test_any_cut_of_the_offsets_gives_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], shared: int, cuts: list[int]
) -> None:
    unused_store: Store = None  # type: ignore[assignment]  # events need no catalog
    log = EventLog(tmp_path_factory.mktemp("log") / "events.db")
    total = 0
    for size in sizes:
        total = log.append(STREAM, numbered(total, size))[1] + 1
    inputs = Inputs(unused_store, log, rows_per_partition=shared)
    bounds = sorted({0, total, *(c for c in cuts if c < total)})
    found: list[int] = []
    for start, end in itertools.pairwise(bounds):
        pieces = inputs.pending(Lane(STREAM), start, 100)
        assert [p.position for p in pieces[1:]] == [p.end for p in pieces[:-1]]
        assert (pieces[0].position, pieces[-1].end) == (start, total)
        for partition in inputs.partitions([(Lane(STREAM), start, end)])[0]:
            table = read_partition(STREAM, pickle.loads(pickle.dumps(partition)), ["k"])
            assert table.schema.names == ["ts", "k", "_pos"]
            assert table.num_rows == partition.rows
            assert table.column("_pos")[0].as_py() == partition.first_pos
            assert table.column("_pos").to_pylist() == table.column("k").to_pylist()
            found += table.column("k").to_pylist()
    assert found == list(range(total))
    log.close()


def test_a_log_that_lacks_events_says_so(either_events: EventLog) -> None:
    either_events.append(STREAM, numbered(0, 3))
    with pytest.raises(EventLogDown, match="lacks events"):
        either_events.read(STREAM, 0, 5)


def test_a_file_that_is_no_log_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(EventLogDown, match="cannot be used"):
        EventLog(path)
    assert path.read_bytes() == b"not a database" * 100


def test_an_append_that_cannot_be_written_stores_nothing(events: EventLog) -> None:
    events.append(STREAM, numbered(0, 1))
    with sqlite3.connect(str(events.file)) as other:
        other.execute(
            "CREATE TRIGGER full BEFORE UPDATE ON heads BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        )
    other.close()
    with pytest.raises(EventLogDown, match="cannot be used"):
        events.append(STREAM, numbered(1, 5))
    assert events.end(STREAM.id) == 1
    assert [p.rows for p in events.pieces(STREAM.id, 0, 9)] == [1]


def test_of_events_kept_apart_old_ones_are_counted_in_one_record(
    either_events: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_log, "_QUARANTINE_KEPT", 3)
    one, two = (replace(stream_of(stream_id=n), max_ahead_us=0) for n in (1, 2))
    later_us = wall_clock_us() + 10**12
    for number in range(1, 9):
        either_events.append(one, [{"ts": later_us, "k": number}] * number)
        either_events.append(two, [{"ts": later_us, "k": number}])
    count, newest, times_us = either_events.quarantined(one, 1000)
    assert (count, len(times_us)) == (36, 6 + 7 + 8)
    assert newest["k"].to_pylist() == [8] * 8 + [7] * 7 + [6] * 6
    records = either_events._tables.quarantine
    with either_events._read() as connection:
        assert connection.execute(select(func.count()).select_from(records)).scalar_one() == 2 * (3 + 1)
    either_events.append(one, [{"ts": 1, "k": 1}])
    assert sorted(either_events.known_ids()) == [1, 2]
    either_events.forget(2)
    assert either_events.known_ids() == (1,)
    assert (either_events.quarantined(two, 9)[0], either_events.quarantined(one, 9)[0]) == (0, 36)
