"""Converts posted events to a table: a request's objects are checked against the schema, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from catalog.columns.arrow_types import arrow_schema
from catalog.values.stream import Column, Stream
from catalog.wording.wording import did_you_mean, with_article
from service.errors import EventRejected
from service.inputs.formats.conversion.times import are_plausible, other_unit, unit_of
from service.inputs.formats.conversion.values import TextForm, UnfitValueError, expected, from_json, json_text
from service.inputs.formats.findings.facts import folded_name

#: Characters of a refused value that an error repeats.
_SHOWN_CHARACTERS = 60


def events_to_table(stream: Stream, events: Sequence[object], *, without_time: bool = False) -> pa.Table:
    """Return the events as a table of the stream's columns; a missing field is NULL.

    Fields match columns without regard to case.

    Args:
        stream: The stream.
        events: Objects parsed from JSON.
        without_time: Whether to accept events without an event time, such as punctuations.

    Raises:
        EventRejected: An event is not an object, has a field that is not a column, has a value that does not
            fit, or lacks its event time. The first such event is named.
    """
    objects = [event for event in events if isinstance(event, dict)]
    if len(objects) != len(events):
        index = next(i for i, event in enumerate(events) if not isinstance(event, dict))
        # An earlier event may be wrong as well, and the error must name the first one.
        events_to_table(stream, events[:index], without_time=without_time)
        raise EventRejected(
            f"event {index} is not an object but {json_text(events[index], _SHOWN_CHARACTERS)}",
            index=index,
            field=None,
            expected=f'an object with the columns of stream "{stream.name}"',
        )
    arrays: list[pa.Array] = []
    form = TextForm.of(stream)
    objects, misfits = _named(stream, objects)
    for column in stream.columns:
        values = [event.get(column.name) for event in objects]
        if column.name == stream.event_time and None in values and not without_time:
            misfits.append(_without_event_time(column, values.index(None)))
        try:
            arrays.append(from_json(values, column.type, form))
        except UnfitValueError as error:
            misfits.append(_unfit(column, error, form))
    if misfits:
        raise min(misfits, key=lambda misfit: misfit.index)
    table = pa.table(arrays, schema=arrow_schema(stream))
    if not without_time:
        _refuse_other_unit(stream, objects, table.column(stream.event_time))
    return table


def parted(stream: Stream, table: pa.Table, now_us: int) -> tuple[pa.Table, pa.Table | None]:
    """Return the rows up to the latest allowed time, and the later rows, or None if no row is later."""
    if stream.max_ahead_us is None or not table.num_rows:
        return table, None
    limit = pa.scalar(now_us + stream.max_ahead_us, pa.timestamp("us"))
    # A punctuation has no event time.
    fits = pc.fill_null(pc.less_equal(table.column(stream.event_time), limit), True)
    if pc.all(fits).as_py():
        return table, None
    return table.filter(fits), table.filter(pc.invert(fits))


def _refuse_other_unit(stream: Stream, objects: Sequence[dict[str, object]], read: pa.Array) -> None:
    """Refuse events whose times are most likely in another unit, since they would make other events late."""
    extremes = pc.min_max(read.cast(pa.int64()))
    if are_plausible(extremes["min"].as_py(), extremes["max"].as_py()):
        return
    times = [event[stream.event_time] for event in objects]
    found = other_unit(times, stream.time_unit)
    if found is not None:
        index = times.index(found.number)
        raise EventRejected(
            f'event {index}, field "{stream.event_time}": {found}',
            index=index,
            field=stream.event_time,
            expected=expected("timestamp", TextForm.of(stream)),
            hint=f"Declare time_unit: {found.unit} in the stream, or write the times as text if these "
            "values are right.",
        )


def _unfit(column: Column, error: UnfitValueError, form: TextForm) -> EventRejected:
    shown = json_text(error.value, _SHOWN_CHARACTERS)
    is_number = column.type == "timestamp" and not isinstance(error.value, str | bool)
    unit = unit_of(error.value, form.time_unit) if is_number else None
    return EventRejected(
        f'event {error.index}, field "{column.name}": {shown} is not {with_article(column.type)}',
        index=error.index,
        field=column.name,
        expected=expected(column.type, form),
        hint=None if unit is None else f"Declare time_unit: {unit} in the stream.",
    )


def _without_event_time(column: Column, index: int) -> EventRejected:
    return EventRejected(
        f'event {index} has no event time in field "{column.name}"',
        index=index,
        field=column.name,
        expected=expected(column.type),
    )


def _named(
    stream: Stream, objects: list[dict[str, object]]
) -> tuple[list[dict[str, object]], list[EventRejected]]:
    """Return the events with fields renamed to their columns, and the errors in field names.

    Names match without regard to case, as in files. Most events already have the declared names.
    """
    names = [column.name for column in stream.columns]
    unknown = set(chain.from_iterable(objects)).difference(names)
    if not unknown:
        return objects, []
    columns = {folded_name(name): name for name in names}
    others = {name: columns[folded_name(name)] for name in unknown if folded_name(name) in columns}
    wrong: list[EventRejected] = []
    if unknown.difference(others):
        wrong.append(_unknown_field(stream, objects, unknown.difference(others)))
    if not others:
        return objects, wrong
    renamed = [{others.get(name, name): value for name, value in event.items()} for event in objects]
    twice = (
        i for i, (event, found) in enumerate(zip(objects, renamed, strict=True)) if len(found) < len(event)
    )
    index = next(twice, None)
    if index is not None:
        wrong.append(_field_twice(objects[index], others, index))
    return renamed, wrong


def _field_twice(event: dict[str, object], others: dict[str, str], index: int) -> EventRejected:
    columns = [others.get(name, name) for name in event]
    column = next(name for name in columns if columns.count(name) > 1)
    return EventRejected(
        f'event {index} has column "{column}" twice, in fields that differ by case',
        index=index,
        field=column,
        expected="one field of each name",
        hint="Keep one of them.",
    )


def _unknown_field(stream: Stream, objects: Sequence[dict[str, object]], unknown: set[str]) -> EventRejected:
    """Return an error about the first field that is not a column; most likely its name was mistyped."""
    names = [column.name for column in stream.columns]
    index, field = next((i, f) for i, event in enumerate(objects) for f in event if f in unknown)
    shown = json_text(field, _SHOWN_CHARACTERS)
    return EventRejected(
        f'event {index} has a field {shown} that is not a column of stream "{stream.name}"',
        index=index,
        field=field,
        expected=f"only the fields {', '.join(names)}",
        hint=did_you_mean(str(field), names),
    )
