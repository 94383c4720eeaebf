"""Posted punctuations in the event log: in order among events, and returned only on request."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.columns.arrow_types import PUNCTUATION_COLUMN
from catalog.columns.punctuation_marks import promises_in
from catalog.values.stream import Column, HttpSource, Punctuations, Stream
from service.errors import EventRejected
from service.inputs.sources.posted.event_reader import read_events
from service.inputs.sources.posted.http_log import EventLog

COLUMNS = (Column("ts", "timestamp"), Column("k", "bigint"), Column("m", "string"))
ITEMS = Stream(3, "items", COLUMNS, "ts", 0, HttpSource(), punctuations=Punctuations((("k",), ("k", "m"))))


def event(key: int) -> dict[str, object]:
    return {"ts": "2026-01-01T00:00:00Z", "k": key, "m": "x"}


def test_punctuations_keep_their_places_among_events(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.db")
    first, last = log.append(
        ITEMS,
        [
            event(1),
            {"_punctuation": {"k": [7, 8]}},
            event(2),
            {"_punctuation": {"m": "y", "k": 9}},
        ],
    )
    assert (first, last) == (0, 4)
    assert log.append(ITEMS, [event(3)]) == (5, 5)
    assert log.append(ITEMS, [{"_punctuation": {"k": 3}}]) == (6, 6)
    read = read_events(tmp_path / "events.db", ITEMS, 0, 7, punctuations=True).to_pylist()
    fixed = [row[PUNCTUATION_COLUMN] and json.loads(row[PUNCTUATION_COLUMN]) for row in read]
    assert fixed == [None, ["k"], ["k"], None, ["k", "m"], None, ["k"]]
    assert [row["k"] for row in read] == [1, 7, 8, 2, 9, 3, 3]
    assert [row["_pos"] for row in read] == list(range(7))
    assert [row["ts"] is None for row in read] == [on is not None for on in fixed]
    assert [piece.rows for piece in log.pieces(3, 0, 10)] == [5, 1, 1]
    log.close()


@pytest.mark.parametrize("stream", [ITEMS, replace(ITEMS, punctuations=None)])
def test_who_asks_for_rows_gets_no_punctuations(stream: Stream, tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.db")
    log.append(ITEMS, [event(1), {"_punctuation": {"k": 7}}])
    log.append(ITEMS, [event(2)])
    rows = log.read(stream, 0, 3)
    assert rows.column_names == ["ts", "k", "m", "_pos"]
    assert rows.column("_pos").to_pylist() == [0, 2]
    log.close()


def test_a_range_takes_one_offset_and_is_read_back_with_its_end(tmp_path: Path) -> None:
    columns = (
        Column("ts", "timestamp"),
        Column("k", "decimal(9,2)"),
        Column("d", "date"),
        Column("m", "double"),
    )
    stream = Stream(
        3, "items", columns, "ts", 0, HttpSource(), punctuations=Punctuations((("k",), ("d",), ("m",)))
    )
    log = EventLog(tmp_path / "events.db")
    given = [{"k": {"from": "1.5", "below": "9.25"}}, {"d": {"below": "2026-01-02"}}, {"k": {"from": 3}}]
    assert log.append(stream, [{"_punctuation": each} for each in given]) == (0, 2)
    read = read_events(tmp_path / "events.db", stream, 0, 3, punctuations=True)
    found = {
        (name, begin, end)
        for promise in promises_in(stream, read, read.column(PUNCTUATION_COLUMN))
        for name in promise.on
        for begin, end in zip(
            promise.table.column(name).to_pylist(), (promise.below or pa.nulls(1)).to_pylist(), strict=True
        )
    }
    assert found == {
        ("k", Decimal("1.50"), Decimal("9.25")),
        ("k", Decimal("3.00"), None),
        ("d", None, date(2026, 1, 2)),
    }
    with pytest.raises(EventRejected, match=r"is a double; ranges of this type are not supported"):
        log.append(stream, [{"_punctuation": {"m": {"from": 1}}}])
    log.close()


def test_the_first_event_that_is_wrong_is_named_and_nothing_is_stored(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.db")
    wrong = {"_punctuation": {"k": "x"}}
    for events, index in (
        ([event(1), wrong], 1),
        ([event(1), {"_punctuation": {"k": [1, 2]}}, event(2), {"k": 1}], 3),
        ([event(1), {"k": 1}, wrong], 1),
        ([event(1), {"_punctuation": {"m": "x"}}, {"k": 1}], 1),
        ([{"_punctuation": {"k": 1}, "k": 2}], 0),
        ([{"_punctuation": {"k": list(range(10_001))}}], 0),
        ([{"_punctuation": 5}], 0),
    ):
        with pytest.raises(EventRejected) as refused:
            log.append(ITEMS, events)
        assert refused.value.index == index
        assert f"event {index}" in refused.value.primary
    assert log.end(3) == 0
    log.close()


def test_a_stream_without_a_contract_says_how_to_declare_one(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.db")
    with pytest.raises(EventRejected, match="has no contract for punctuations") as refused:
        log.append(replace(ITEMS, punctuations=None), [event(1), {"_punctuation": {"k": 1}}])
    assert "PATCH /api/v1/streams/items" in str(refused.value.hint)
    log.close()
