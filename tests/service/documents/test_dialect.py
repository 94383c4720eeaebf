"""Options of text files in the document of a stream."""

from __future__ import annotations

from typing import Any

import pytest

from api.streams.schemas import StreamOut
from catalog.documents.codec import decode, encode
from catalog.values.stream import Dialect, FilesSource, Stream
from service.documents.streams.stream_document import StreamDocument
from service.errors import InvalidStream


def stream_of_document(file_format: str = "csv", **options: Any) -> Stream:
    document = {
        "name": "s",
        "columns": {"ts": "timestamp", "k": "bigint"},
        "event_time": "ts",
        "time_unit": "ms",
        "source": {"type": "files", "format": file_format, "path": "/in", **options},
    }
    return StreamDocument.model_validate(document).to_stream()


def test_options_go_into_the_stream_its_stored_document_and_the_answer() -> None:
    options = {"delimiter": ";", "null_values": ["", "n/a"], "timezone": "Europe/Berlin", "skip_rows": 2}
    stream = stream_of_document(**options)
    assert isinstance(stream.source, FilesSource)
    assert stream.source.dialect == Dialect(
        delimiter=";", null_values=("", "n/a"), timezone="Europe/Berlin", skip_rows=2
    )
    assert stream.time_unit == "ms"
    assert decode(Stream, encode(stream)) == stream
    answer = StreamOut.of(stream).model_dump(mode="json")
    assert answer["time_unit"] == "ms"
    assert answer["source"] == {"type": "files", "format": "csv", "path": "/in", **options}


def test_a_stream_stored_before_there_were_options_has_the_defaults() -> None:
    old = encode(stream_of_document()).replace(b',"time_unit":"ms"', b"")
    begin = old.index(b',"dialect"')
    old = old[:begin] + old[old.index(b"}", begin) + 1 :]
    stream = decode(Stream, old)
    assert isinstance(stream.source, FilesSource)
    assert stream.source.dialect == Dialect()
    assert stream.time_unit is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"delimiter": ";;"}, "option delimiter is not one punctuation mark: ';;'"),
        ({"delimiter": "e"}, "option delimiter is not one punctuation mark: 'e'"),
        ({"quote": ","}, "option quote and delimiter are the same: ','"),
        (
            {"quote": None, "escape": "\\"},
            "option escape is used inside quotes, but the quote character is switched off",
        ),
        ({"decimal_point": ",", "thousands": ","}, "option decimal_point and thousands are the same: ','"),
        ({"encoding": "utf-9"}, 'option encoding is not the name of an encoding: "utf-9"'),
        ({"encoding": "rot13"}, 'option encoding is not the name of an encoding: "rot13"'),
        ({"timezone": "Berlin"}, 'option timezone is not the name of a time zone: "Berlin"'),
        ({"timezone": "../x"}, 'option timezone is not the name of a time zone: "../x"'),
        ({"timestamp_format": "%H:%M"}, 'option timestamp_format has no year: "%H:%M"'),
        ({"date_format": "%d.%m."}, 'option date_format has no year: "%d.%m."'),
        ({"date_format": "%m/%Y"}, 'option date_format must be a full date without a time: "%m/%Y"'),
        ({"date_format": "%c"}, 'option date_format must be a full date without a time: "%c"'),
        ({"timestamp_format": "%Y-%Q"}, 'option timestamp_format cannot be read: "%Y-%Q"'),
        ({"null_values": ["a\nb"]}, "option null_values contains a line end"),
        ({"file_format": "jsonl", "delimiter": ","}, "option delimiter is for CSV files"),
        ({"file_format": "parquet", "timezone": "UTC"}, "option timezone is for CSV and JSON lines files"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidStream) as caught:
        stream_of_document(**options)
    assert caught.value.primary.startswith(problem)
    assert caught.value.hint
    assert caught.value.path[0] == "source"
