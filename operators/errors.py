"""Errors of the operators.

Unavailable
* WriterReplaced        another engine writes the segments now
InternalError
* CorruptPayload        bytes that reached a bucket are not a payload
* CorruptSegment        stored bytes are not a segment of a known format
* UnknownStateFormat    the stored state was written by another version
"""

from __future__ import annotations

from catalog.errors import InternalError, Unavailable


class CorruptPayload(InternalError):
    """Bytes that reached a bucket are not a payload."""

    code = "corrupt-payload"


class CorruptSegment(InternalError):
    """Stored bytes are not a segment of a known format."""

    code = "corrupt-segment"


class UnknownStateFormat(InternalError):
    """The stored state was written by another version."""

    code = "unknown-state-format"


class WriterReplaced(Unavailable):
    """Another engine writes the segments now."""

    code = "writer-replaced"
