"""Converts messages of a topic to events, from their JSON or Avro value, their key and their headers.

A message without a value is a tombstone: its key was deleted. A tombstone is not an event and is skipped. A
message that does not fit the stream is reported with the reason, even if the unfit column is not requested.
So every read accepts the same messages as events. A missing field is NULL, other fields are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from catalog.columns.arrow_types import arrow_schema
from catalog.times.durations import format_duration
from catalog.values.stream import KafkaSource, Stream
from service.inputs.formats.conversion.values import (
    TextForm,
    UnfitValueError,
    exact_number,
    expected,
    from_json,
    from_text,
    json_text,
    needs_digits,
)
from service.inputs.messages.avro import UnfitAvroError, avro_decoder

if TYPE_CHECKING:
    from confluent_kafka import Message  # an extra of the package

#: Characters of an unfit value that a reason repeats.
_SHOWN_CHARACTERS: Final = 60

#: Errors of values that are not in the format of their source.
_UNDECODED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, UnfitAvroError)

_decode_json = msgspec.json.Decoder().decode
_decode_digits = msgspec.json.Decoder(float_hook=exact_number).decode


@dataclass(frozen=True, slots=True)
class Unfit:
    """A message that is not an event.

    Attributes:
        index: 0-based index among the messages.
        reason: Why it is not an event.
    """

    index: int
    reason: str


def messages_to_table(
    stream: Stream, source: KafkaSource, messages: Sequence[Message]
) -> tuple[pa.Table, list[int], list[Unfit]]:
    """Return messages as a table of the stream's columns.

    Args:
        stream: Stream with a ``kafka`` source.
        source: Its source.
        messages: The messages.

    Returns:
        The table; the index of each row's message, ascending; the messages that are not events, in order.

    Raises:
        KafkaDown: The schema registry does not answer.
    """
    unfit: dict[int, str] = {}
    objects: dict[int, Mapping[str, object]] = {}
    form, kind = ("JSON", "a JSON object") if source.format == "json" else ("Avro", "a record")
    decode = _decoder(stream, source)
    for index, message in enumerate(messages):
        value = message.value()
        if value is None:
            continue
        try:
            found = decode(value)
        except _UNDECODED as error:
            unfit[index] = f"its value is not {form}: {error}"
            continue
        if isinstance(found, dict):
            objects[index] = found
        else:
            unfit[index] = f"its value is not {kind} but {json_text(found, _SHOWN_CHARACTERS)}"
    # All columns are read; messages that do not fit in any column are removed.
    columns: dict[str, pa.Array] = {}
    indexes = list(objects)
    for column in stream.columns:
        array, misfits = _column(stream, source, column.name, column.type, messages, objects, indexes)
        columns[column.name] = array
        for index, reason in misfits.items():
            unfit.setdefault(index, reason)
    _too_far_ahead(stream, messages, indexes, columns[stream.event_time], unfit)
    table = pa.table([columns[c.name] for c in stream.columns], schema=arrow_schema(stream))
    if any(index in unfit for index in indexes):
        kept = [place for place, index in enumerate(indexes) if index not in unfit]
        table = table.take(pa.array(kept, pa.int64()))
        indexes = [indexes[place] for place in kept]
    return table, indexes, [Unfit(index, unfit[index]) for index in sorted(unfit)]


def message_times(stream: Stream, source: KafkaSource, messages: Sequence[Message]) -> list[int | None]:
    """Return the event time of each message, µs UTC, or None if it is missing, not valid or too far ahead.

    Only the event time is decoded, so a message whose other columns do not fit has a time as well.

    Raises:
        KafkaDown: The schema registry does not answer.
    """
    if stream.event_time in _from_elsewhere(source):
        objects: dict[int, Mapping[str, object]] = {
            index: {} for index, message in enumerate(messages) if message.value() is not None
        }
    else:
        decode = _event_time_decoder(stream, source)
        objects = {}
        for index, message in enumerate(messages):
            value = message.value()
            if value is not None:
                try:
                    objects[index] = decode(value)
                except _UNDECODED:
                    continue
    indexes = list(objects)
    array, unfit = _column(stream, source, stream.event_time, "timestamp", messages, objects, indexes)
    _too_far_ahead(stream, messages, indexes, array, unfit)
    times: list[int | None] = [None] * len(messages)
    for index, time_us in zip(indexes, array.cast(pa.int64()).to_pylist(), strict=True):
        if index not in unfit:
            times[index] = time_us
    return times


def _decoder(stream: Stream, source: KafkaSource) -> Callable[[bytes], Any]:
    """Return the decoder of a whole value."""
    if source.format == "avro":
        return avro_decoder(stream, source, [column.name for column in stream.columns])
    return _decode_digits if needs_digits(stream) else _decode_json


def _event_time_decoder(stream: Stream, source: KafkaSource) -> Callable[[bytes], Mapping[str, object]]:
    """Return a decoder of the event time alone."""
    name = stream.event_time
    if source.format == "json":
        field = _json_field_decoder(name)
        return lambda value: {name: field(value).found}
    record = avro_decoder(stream, source, [name])

    def event_time(value: bytes) -> Mapping[str, object]:
        found = record(value)
        return found if isinstance(found, dict) else {}

    return event_time


@lru_cache(maxsize=64)
def _json_field_decoder(name: str) -> Callable[[bytes], Any]:  # Any: a class made for the field
    """Return a decoder that reads one field and skips the others."""
    one_field = msgspec.defstruct("OneField", [("found", Any, None)], rename={"found": name})
    return msgspec.json.Decoder(one_field, float_hook=exact_number).decode


def _from_elsewhere(source: KafkaSource) -> dict[str, str | None]:
    """Return each column that a header or the key fills, with the name of the header, or None for the key."""
    columns: dict[str, str | None] = dict(source.headers)
    return columns if source.key is None else columns | {source.key: None}


def _column(
    stream: Stream,
    source: KafkaSource,
    name: str,
    column_type: str,
    messages: Sequence[Message],
    objects: Mapping[int, Mapping[str, object]],
    indexes: Sequence[int],
) -> tuple[pa.Array, dict[int, str]]:
    """Return a column of the given messages, with NULL for unfit values, and reasons by message index."""
    unfit: dict[int, str] = {}
    elsewhere = _from_elsewhere(source)
    place = f'column "{name}"'
    form = TextForm.of(stream)
    convert: Callable[[Sequence[Any]], pa.Array]
    if name in elsewhere:
        header = elsewhere[name]
        place += " from its key" if header is None else f' from header "{header}"'
        values: list[Any] = []
        for index in indexes:
            try:
                values.append(_text(messages[index], header))
            except UnicodeDecodeError:
                unfit[index] = f"{place}: it is not UTF-8 text"
                values.append(None)

        def convert(texts: Sequence[Any]) -> pa.Array:
            return from_text(pa.array(texts, pa.string()), column_type, form)
    else:
        values = [objects[index].get(name) for index in indexes]

        def convert(found: Sequence[Any]) -> pa.Array:
            return from_json(found, column_type, form)

    try:
        array = convert(values)
    except UnfitValueError:
        for at, value in enumerate(values):
            try:
                convert([value])
            except UnfitValueError:
                unfit[indexes[at]] = (
                    f"{place}: {json_text(value, _SHOWN_CHARACTERS)} is not {expected(column_type, form)}"
                )
                values[at] = None
        array = convert(values)
    if name == stream.event_time and array.null_count:
        for at, is_null in enumerate(array.is_null().to_pylist()):
            if is_null:
                unfit.setdefault(indexes[at], f"{place}: the event time is missing")
    return array, unfit


def _text(message: Message, header: str | None) -> str | None:
    """Return the text of the last header of a name, or of the key for None; None if there is no such text."""
    if header is None:
        found = message.key()
    else:
        found = next((value for name, value in reversed(headers_of(message)) if name == header), None)
    return None if found is None else bytes(found).decode("utf-8")


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """Return the headers of a message."""
    found: Any = message.headers()  # the library's type also covers headers that only producers may give
    return list(found or [])


def _too_far_ahead(
    stream: Stream,
    messages: Sequence[Message],
    indexes: Sequence[int],
    times: pa.Array,
    unfit: dict[int, str],
) -> None:
    """Add to ``unfit`` the messages with an event time too far ahead of the message's timestamp.

    The wall clock is not used, since a repeated batch would then get another result.
    """
    if stream.max_ahead_us is None:
        return
    ahead = f"is more than {format_duration(stream.max_ahead_us)} ahead of the message's timestamp"
    for index, time_us in zip(indexes, times.cast(pa.int64()).to_pylist(), strict=True):
        kind, stamp_ms = messages[index].timestamp()
        if time_us is not None and kind and time_us > stamp_ms * 1000 + stream.max_ahead_us:
            unfit.setdefault(index, f'event time {time_us} µs in column "{stream.event_time}" {ahead}')
