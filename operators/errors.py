"""Errors of the operators.

InvalidInput
* ExpressionFailed      an expression takes more time or memory than allowed
Unavailable
* PromiseBroken         a row repeats values that its stream promised not to repeat
* StorageDown           the object store cannot be reached, or refuses a request
* WriterReplaced        another engine writes the segments now
InternalError
* CorruptPayload        bytes that reached a bucket are not a payload
* CorruptSegment        stored bytes are not a segment of a known format
* UnknownStateFormat    the stored state was written by another version of Sluice
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from catalog.errors import InternalError, InvalidInput, Unavailable

_FAILED: Final = re.compile(r"\[failed expression ([0-9a-f]{64})\]")


class CorruptPayload(InternalError):
    """Bytes that reached a bucket are not a payload."""

    code = "corrupt-payload"


class CorruptSegment(InternalError):
    """Stored bytes are not a segment of a known format."""

    code = "corrupt-segment"


class UnknownStateFormat(InternalError):
    """The stored state was written by another version of Sluice."""

    code = "unknown-state-format"


class PromiseBroken(Unavailable):
    """A row repeats values that its stream promised not to repeat; by the contract, this stops the engine.

    Attributes:
        stream: Name of the stream.
        position: Position of the row in the stream.
    """

    code = "promise-broken"

    def __init__(self, stream: str, key: str, position: int):
        super().__init__(
            f'a row of stream "{stream}" breaks a promise: {key} was closed before',
            detail=f"The row has position {position}. By the stream's contract, a broken promise stops the "
            "engine.",
            hint="Drop the batch with POST /api/v1/engine:skip, and correct the program that sends the "
            "punctuations.",
        )
        self.stream = stream
        self.position = position


class StorageDown(Unavailable):
    """The object store is unreachable, or refuses a request."""

    code = "storage-down"


class WriterReplaced(Unavailable):
    """Another engine has taken over writing the segments."""

    code = "writer-replaced"


class ExpressionFailed(InvalidInput):
    """An expression takes more time or memory than allowed.

    Workers also raise this error, and the engine finds it in Spark's trace (``find_failed_expression``).

    Attributes:
        digest: Digest of the expression (``expression_digest``).
    """

    code = "expression-failed"

    def __init__(self, sql: str, reason: str):
        digest = expression_digest(sql)
        super().__init__(
            f"the expression {sql} {reason}",
            detail=f"It was evaluated on rows of a stream. [failed expression {digest}]",
            hint="Write a simpler condition.",
        )
        self.digest = digest


def expression_digest(sql: str) -> str:
    """Return the digest by which an error text names an expression: 64 hexadecimal digits."""
    return sha256(sql.encode()).hexdigest()


def find_failed_expression(text: str) -> str | None:
    """Return the digest in an `ExpressionFailed` message within a text, or None if no message is found."""
    match = _FAILED.search(text)
    return None if match is None else match[1]
