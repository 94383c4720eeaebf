"""Checks posted punctuations against the stream's contract; converts each to one row per key or range.

{"_punctuation": {"item_id": 180}}          one row: item_id 180
{"_punctuation": {"item_id": [7, 9]}}       two rows
{"_punctuation": {"item_id": {"from": 1, "below": 9}}}       one row: item_id 1; the mark contains the end 9
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from catalog.columns.arrow_types import BELOW_COLUMN, PUNCTUATION_COLUMN
from catalog.columns.punctuation_marks import RANGE_MARK, has_ranges, mark_of, promises_in
from catalog.values.control import Promises
from catalog.values.stream import Punctuations, Stream
from catalog.wording.wording import did_you_mean
from service.errors import EventRejected
from service.inputs.formats.conversion.values import json_text
from service.inputs.sources.posted.events import events_to_table

#: Maximum number of keys that one punctuation may close; a client posts more keys as several punctuations.
MOST_VALUES: Final = 10_000
_SHOWN_CHARACTERS = 60


def posted_table(stream: Stream, events: Sequence[object]) -> pa.Table:
    """Return events, including punctuations, as a table; see ``events_to_table``.

    Args:
        stream: The stream.
        events: Objects parsed from JSON.

    Returns:
        The columns of the stream, and ``PUNCTUATION_COLUMN`` if any event is a punctuation. The row of a
        punctuation has the values that the punctuation fixes, and NULL in the other columns.

    Raises:
        EventRejected: An event does not fit; the first one is named.
    """
    contract = stream.punctuations
    if contract is None:
        return _without_contract(stream, events)
    numbers = [n for n, event in enumerate(events) if isinstance(event, dict) and PUNCTUATION_COLUMN in event]
    if not numbers:
        return events_to_table(stream, events)
    promised = set(numbers)
    # Convert events only up to the first invalid punctuation, so that the first invalid event is named.
    wrong: EventRejected | None = None
    patterns: dict[int, list[dict[str, object]]] = {}
    for number in numbers:
        try:
            patterns[number] = list(_constants(stream, contract, events[number], number))
        except EventRejected as error:
            wrong, events = error, events[:number]
            break
    rows = [event for number, event in enumerate(events) if number not in promised]
    places = [number for number in range(len(events)) if number not in promised]
    table = _at(places, stream, rows)
    if wrong is not None:
        raise wrong
    marks = pa.nulls(table.num_rows, pa.string())
    table = table.append_column(PUNCTUATION_COLUMN, marks)
    parts, done = [], 0
    for number, constants in patterns.items():
        before = sum(place < number for place in places[done:])
        parts.append(table.slice(done, before))
        done += before
        closing = _at([number] * len(constants), stream, constants, without_time=True)
        end = _range_end(stream, events[number], number, closing)
        mark = pa.array([mark_of(constants[0]) + end] * len(constants), pa.string())
        parts.append(closing.append_column(PUNCTUATION_COLUMN, mark))
    parts.append(table.slice(done))
    return pa.concat_tables(parts).combine_chunks()


def promises_of(stream: Stream, on: Sequence[str], values: pa.Table) -> Promises:
    """Return punctuations as a control record.

    Args:
        stream: The stream.
        on: Columns that the punctuations fix.
        values: Table with these columns, and ``BELOW_COLUMN`` with the ends if the values begin ranges.
    """
    sink = pa.BufferOutputStream()
    fixed = values.select([*on, *(name for name in (BELOW_COLUMN,) if name in values.column_names)])
    with pa.ipc.new_stream(sink, fixed.schema) as writer:
        writer.write_table(fixed)
    return Promises(stream.id, tuple(on), b64encode(sink.getvalue()).decode())


def posted_promises(stream: Stream, events: Sequence[object]) -> list[Promises]:
    """Return posted punctuations as control records, one per set of columns; raises as `posted_table`."""
    table = posted_table(stream, events)
    return [
        promises_of(
            stream,
            sorted(promise.on),
            promise.table
            if promise.below is None
            else promise.table.append_column(BELOW_COLUMN, promise.below),
        )
        for promise in promises_in(stream, table, table.column(PUNCTUATION_COLUMN))
    ]


def _without_contract(stream: Stream, events: Sequence[object]) -> pa.Table:
    try:
        return events_to_table(stream, events)
    except EventRejected as error:
        if error.field != PUNCTUATION_COLUMN:
            raise
        raise EventRejected(
            f'event {error.index} is a punctuation, but stream "{stream.name}" has no contract for '
            "punctuations",
            index=error.index,
            field=PUNCTUATION_COLUMN,
            expected=error.expected,
            hint=f"Declare one with PATCH /api/v1/streams/{stream.name}: "
            '{"punctuations": {"on": [["<column>"]]}}.',
        ) from error


def _at(
    places: Sequence[int], stream: Stream, events: Sequence[object], *, without_time: bool = False
) -> pa.Table:
    """Return events as a table; errors give the index among all events of the request."""
    try:
        return events_to_table(stream, events, without_time=without_time)
    except EventRejected as error:
        place = places[error.index]
        raise EventRejected(
            error.primary.replace(f"event {error.index}", f"event {place}", 1),
            index=place,
            field=error.field,
            expected=error.expected,
            hint=error.hint,
        ) from error


def _constants(
    stream: Stream, contract: Punctuations, event: object, index: int
) -> Iterator[dict[str, object]]:
    """Yield the values that a punctuation fixes, one combination after the other."""
    assert isinstance(event, dict)
    pattern = event[PUNCTUATION_COLUMN]
    sets = " or ".join(f"{{{', '.join(names)}}}" for names in contract.on)
    expected = f"an object with values for the columns {sets}"

    def refused(told: str, hint: str | None = None) -> EventRejected:
        return EventRejected(
            f"event {index}, punctuation: {told}",
            index=index,
            field=PUNCTUATION_COLUMN,
            expected=expected,
            hint=hint,
        )

    if len(event) > 1:
        others = ", ".join(f'"{name}"' for name in event if name != PUNCTUATION_COLUMN)
        raise refused(f"it also has the fields {others}", "Send the punctuation as a separate event.")
    if not isinstance(pattern, dict):
        raise refused(f"{json_text(pattern, _SHOWN_CHARACTERS)} is not an object")
    names = [column.name for column in stream.columns]
    for name in pattern:
        if name not in names:
            raise refused(f'"{name}" is not a column of stream "{stream.name}"', did_you_mean(name, names))
    if not any(set(pattern) == set(on) for on in contract.on):
        given = f"{{{', '.join(pattern)}}}"
        raise refused(f"the contract of the stream does not declare the set of columns {given}")
    choices = []
    for name, value in pattern.items():
        if isinstance(value, dict):
            kind = next(column.type for column in stream.columns if column.name == name)
            _check_range(name, value, kind, alone=len(pattern) == 1, refused=refused)
            choices.append([value.get("from")])
            continue
        values = value if isinstance(value, list) else [value]
        if not values:
            raise refused(f'the list of column "{name}" is empty', "Name at least one value.")
        if any(one is None for one in values):
            raise refused(f'column "{name}" is NULL', "NULL equals no value, so omit the punctuation.")
        choices.append(values)
    if prod(map(len, choices)) > MOST_VALUES:
        raise refused(f"it closes more than {MOST_VALUES} keys", "Send several punctuations.")
    for combination in product(*choices):
        yield dict(zip(pattern, combination, strict=True))


def _check_range(
    name: str, bounds: Mapping[str, object], kind: str, *, alone: bool, refused: Callable[..., EventRejected]
) -> None:
    """Refuse a range with a field other than its bounds, without a bound, or of a type without ranges."""
    hint = 'Write {"from": 1, "below": 9}, or only one of these bounds.'
    for field in bounds:
        if field not in ("from", "below"):
            raise refused(f'the range of column "{name}" has the field "{field}"', hint)
    if not bounds:
        raise refused(f'the range of column "{name}" has no bound', hint)
    if None in bounds.values():
        raise refused(f'a bound of column "{name}" is NULL', "Leave the bound out if the range has none.")
    if not has_ranges(kind):
        told = f'column "{name}" is a {kind}; ranges of this type are not supported'
        raise refused(told, "List the values of the column instead.")
    if not alone:
        raise refused(
            f'column "{name}" has a range, which is not possible together with other columns',
            "List the values of the column instead.",
        )


def _range_end(stream: Stream, event: object, index: int, begins: pa.Table) -> str:
    """Return the part of a punctuation's mark after the names: the end of a range, or an empty text.

    Args:
        stream: The stream.
        event: The punctuation.
        index: Its number.
        begins: Row of the punctuation, with the beginning of the range.

    Raises:
        EventRejected: The end does not fit the column, or the range is empty.
    """
    assert isinstance(event, dict)
    ((name, bounds), *others) = event[PUNCTUATION_COLUMN].items()
    if others or not isinstance(bounds, dict):
        return ""
    if "below" not in bounds:
        return RANGE_MARK
    ends = _at([index], stream, [{name: bounds["below"]}], without_time=True).column(name)
    if pc.any(pc.greater_equal(begins.column(name), ends)).as_py():
        raise EventRejected(
            f'event {index}, punctuation: the range of column "{name}" is empty',
            index=index,
            field=PUNCTUATION_COLUMN,
            expected='a range whose "from" is less than its "below"',
            hint='A range begins at "from" and ends before "below".',
        )
    return RANGE_MARK + str(ends.cast(pa.string())[0].as_py())


def posted_count(stream: Stream, events: Sequence[object]) -> int:
    """Return the number of offsets that events take: one each, or one per key or range of a punctuation."""
    contract = stream.punctuations
    if contract is None:
        return len(events)
    return sum(
        len(list(_constants(stream, contract, event, number)))
        if isinstance(event, dict) and PUNCTUATION_COLUMN in event
        else 1
        for number, event in enumerate(events)
    )
