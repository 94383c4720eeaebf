"""Errors of the operators.

InternalError
* CorruptSegment        stored bytes are not a segment of a known format
* UnknownStateFormat    the stored state was written by another version
"""

from __future__ import annotations

from catalog.errors import InternalError


class CorruptSegment(InternalError):
    """Stored bytes are not a segment of a known format."""

    code = "corrupt-segment"


class UnknownStateFormat(InternalError):
    """The stored state was written by another version."""

    code = "unknown-state-format"
