"""Posted events: a request's objects against their stream's schema, a column at a time."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from itertools import chain

import pyarrow as pa

from catalog.arrow_types import arrow_schema
from catalog.values.stream import Stream
from service.inputs.errors import EventRejected
from service.inputs.values import UnfitValueError, expected, from_json

#: Characters of a refused value that an error repeats.
_SHOWN_CHARACTERS = 60


def events_to_table(stream: Stream, events: Sequence[object]) -> pa.Table:
    """Return the events as a table of the stream's columns; a missing field is NULL.

    Raises:
        EventRejected: An event is no object, has a field that is no column or a value that does not fit,
            or lacks its event time. The first culprit of the first such column is named.
    """
    objects = [event for event in events if isinstance(event, dict)]
    if len(objects) != len(events):
        index = next(i for i, event in enumerate(events) if not isinstance(event, dict))
        raise EventRejected(
            f"event {index} is not an object but {_shown(events[index])}",
            index=index,
            field=None,
            expected=f'an object with the columns of stream "{stream.name}"',
        )
    _refuse_unknown(stream, objects)
    arrays = []
    for column in stream.columns:
        values = [event.get(column.name) for event in objects]
        if column.name == stream.event_time and None in values:
            index = values.index(None)
            raise EventRejected(
                f'event {index} has no event time in field "{column.name}"',
                index=index,
                field=column.name,
                expected=expected(column.type),
            )
        try:
            arrays.append(from_json(values, column.type))
        except UnfitValueError as error:
            raise EventRejected(
                f'event {error.index}, field "{column.name}": {_shown(error.value)} is no {column.type}',
                index=error.index,
                field=column.name,
                expected=expected(column.type),
            ) from error
    return pa.table(arrays, schema=arrow_schema(stream))


def _refuse_unknown(stream: Stream, objects: Sequence[dict[str, object]]) -> None:
    names = [column.name for column in stream.columns]
    unknown = set(chain.from_iterable(objects)).difference(names)
    if not unknown:
        return
    index, field = next((i, f) for i, event in enumerate(objects) for f in event if f in unknown)
    folded = {name.lower(): name for name in names}
    near = difflib.get_close_matches(str(field).lower(), list(folded), n=1)
    raise EventRejected(
        f'event {index} has a field "{field}" that is not a column of stream "{stream.name}"',
        index=index,
        field=field,
        expected=f"only the fields {', '.join(names)}",
        hint=f'Did you mean "{folded[near[0]]}"?' if near else None,
    )


def _shown(value: object) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
