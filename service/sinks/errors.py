"""Errors of sinks."""

from __future__ import annotations

from catalog.errors import Conflict, InvalidInput, Unavailable


class InvalidSink(InvalidInput):
    """A sink is invalid."""

    code = "invalid-sink"


class SinkInUse(Conflict):
    """Another query writes to the same place."""

    code = "sink-in-use"


class SinkFailed(Unavailable):
    """A sink did not take what it was given."""

    code = "sink-failed"
