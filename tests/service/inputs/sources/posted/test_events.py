"""Posted events: digits of decimals, and units of times."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal

import pytest

from api.streams.event_body import parse_events
from catalog.values.stream import Column
from service.errors import EventRejected
from service.inputs.formats.conversion.values import exact_number, needs_digits
from service.inputs.sources.posted.events import events_to_table
from tests.service.inputs.streams import stream_of


def test_a_decimal_keeps_the_digits_that_a_double_has_no_room_for() -> None:
    stream = stream_of(
        columns=(Column("ts", "timestamp"), Column("m", "decimal(20,2)"), Column("x", "double"))
    )
    assert needs_digits(stream)
    body = b'[{"ts": 1, "m": 12345678901234567.89, "x": 0.1}, {"ts": 1, "m": 1e2, "x": 1e400}]'
    events = parse_events(body, "application/json", parse_float=exact_number)
    assert events_to_table(stream, events[:1]).column("m").to_pylist() == [Decimal("12345678901234567.89")]
    assert events_to_table(stream, events[:1]).column("x").to_pylist() == [0.1]
    with pytest.raises(
        EventRejected, match='field "x": a number beyond the range of a double is not a double'
    ):
        events_to_table(stream, events)
    assert not needs_digits(stream_of())


def test_times_that_are_most_likely_of_another_unit_are_refused() -> None:
    events = [{"ts": 1714550400000}, {"ts": 1714550460000}]
    with pytest.raises(EventRejected) as caught:
        events_to_table(stream_of(), events)
    assert caught.value.primary == (
        'event 0, field "ts": 1714550400000 microseconds since 1970 is in the year 1970; the number most '
        "likely counts milliseconds"
    )
    assert caught.value.hint == (
        "Declare time_unit: ms in the stream, or write the times as text if these values are right."
    )
    in_ms = events_to_table(replace(stream_of(), time_unit="ms"), events)
    assert in_ms.column("ts")[0].as_py() == dt.datetime(2024, 5, 1, 8)
    with pytest.raises(EventRejected, match="most likely counts milliseconds"):
        events_to_table(replace(stream_of(), time_unit="us"), events)


@pytest.mark.parametrize(
    "times", [[0, 17], ["1970-01-20", "2024-05-01"], [1714550400000, 5, 6], [1714550400000, *[10**15] * 2]]
)
def test_times_that_may_be_meant_so_are_taken(times: list[object]) -> None:
    assert events_to_table(stream_of(), [{"ts": time} for time in times]).num_rows == len(times)


def test_a_fraction_is_a_time_once_its_unit_is_declared() -> None:
    with pytest.raises(EventRejected, match="is not a timestamp"):
        events_to_table(stream_of(), [{"ts": 1714550400.25}])
    table = events_to_table(replace(stream_of(), time_unit="s"), [{"ts": 1714550400.25}])
    assert table.column("ts")[0].as_py() == dt.datetime(2024, 5, 1, 8, 0, 0, 250_000)


def test_a_time_beyond_the_years_of_its_unit_names_the_unit_to_declare() -> None:
    with pytest.raises(
        EventRejected, match='event 1, field "ts": 1769000000000 is not a timestamp'
    ) as caught:
        events_to_table(replace(stream_of(), time_unit="s"), [{"ts": 1769000000}, {"ts": 1769000000000}])
    assert caught.value.hint == "Declare time_unit: ms in the stream."


def test_fields_are_columns_whatever_their_case() -> None:
    table = events_to_table(stream_of(), [{"TS": 1, "K": 7}, {"ts": 2, "k": 8}])
    assert table.column("k").to_pylist() == [7, 8]
    with pytest.raises(EventRejected, match='event 1 has column "k" twice, in fields that differ by case'):
        events_to_table(stream_of(), [{"TS": 1}, {"ts": 2, "k": 8, "K": 9}])
    with pytest.raises(EventRejected, match='event 1 has a field "key" that is not a column of stream'):
        events_to_table(stream_of(), [{"TS": 1, "K": 7}, {"ts": 2, "key": 8}])
