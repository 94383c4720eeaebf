"""Errors of inputs.

InvalidInput   SourceNotFound, InvalidGenerator, EventRejected, UnusableFile
Unavailable    InputChanged, CorruptInput
"""

from __future__ import annotations

import re
from typing import Final

from catalog.errors import InvalidInput, Unavailable

_CORRUPT: Final = re.compile(r"\[corrupt input stream=(\d+) position=(\d+)\]")


class SourceNotFound(InvalidInput):
    """A source's path does not exist."""

    code = "source-not-found"


class InvalidGenerator(InvalidInput):
    """A generator's settings do not fit its stream."""

    code = "invalid-generator"


class EventRejected(InvalidInput):
    """An event does not fit its stream's schema; nothing of its request was taken.

    Attributes:
        index: 0-based index of the event in its request.
        field: Field that does not fit, or None if the event as a whole does not.
        expected: What was expected there.
    """

    code = "event-rejected"

    def __init__(
        self, primary: str, *, index: int, field: str | None, expected: str, hint: str | None = None
    ):
        path: tuple[str | int, ...] = ("events", index) if field is None else ("events", index, field)
        super().__init__(primary, detail=f"Expected {expected}.", hint=hint, path=path)
        self.index = index
        self.field = field
        self.expected = expected


class UnusableFile(InvalidInput):
    """A file is corrupt or of another schema; the primary is the reason, told of the file."""

    code = "unusable-file"


class InputChanged(Unavailable):
    """A file is not what was listed: reading on would give other rows than the batch had before."""

    code = "input-changed"


class CorruptInput(Unavailable):
    """A listed file turned out to be unreadable; only a recorded decision may void it.

    Attributes:
        stream_id: Stream of the file.
        position: Its position; ``store.source_files.set_verdict`` with it sets the file aside.
        file: Its path.
        reason: What is wrong with it.
    """

    code = "corrupt-input"

    def __init__(self, stream: str, stream_id: int, position: int, file: str, reason: str):
        super().__init__(
            f'file "{file}" of stream "{stream}" cannot be read: {reason}',
            detail=f"It looked sound when listed. [corrupt input stream={stream_id} position={position}]",
            hint="Set the file aside, or restore its bytes and start again.",
        )
        self.stream_id = stream_id
        self.position = position
        self.file = file
        self.reason = reason


def find_corrupt_input(text: str) -> tuple[int, int] | None:
    """Return (stream id, position) of a `CorruptInput` told in a text, such as a trace, or None."""
    match = _CORRUPT.search(text)
    return None if match is None else (int(match[1]), int(match[2]))


class NotAnHttpStream(InvalidInput):
    """Events were posted to a stream whose rows come from elsewhere."""

    code = "not-an-http-stream"

    def __init__(self, stream: str, source_type: str) -> None:
        super().__init__(
            f'stream "{stream}" takes no posted events',
            detail=f'Its source is of type "{source_type}".',
            hint='Register a stream with source {"type": "http"} and post to that.',
        )
