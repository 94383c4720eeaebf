"""Errors of the operators.

InternalError
* CorruptPayload        bytes that reached a bucket are not a payload
* CorruptSegment        stored bytes are not a segment of a known format
* UnknownStateFormat    the stored state was written by another version
"""

from __future__ import annotations

from catalog.errors import InternalError


class CorruptPayload(InternalError):
    """Bytes that reached a bucket are not a payload."""

    code = "corrupt-payload"


class CorruptSegment(InternalError):
    """Stored bytes are not a segment of a known format."""

    code = "corrupt-segment"


class UnknownStateFormat(InternalError):
    """The stored state was written by another version."""

    code = "unknown-state-format"
