"""Errors of Sluice.

    SluiceError
    * InvalidInput     the request is invalid                        HTTP 422, exit 2
    * NotFound         no object has the name in the path             HTTP 404 (ResultsExpired: 410)
    * Conflict         the request conflicts with the current state   HTTP 409 (StalePlanVersion: 412)
    * Overloaded       too much work now, retry later                 HTTP 429
    * Unavailable      a part of the service is down                  HTTP 503
    * InternalError    Sluice has a bug, or its files are damaged     HTTP 500

Wording: the primary text is in lower case without a full stop and names the kind of object and its quoted
name; detail and hint are full sentences. Concrete error classes are in the ``errors.py`` of each top-level
package. Their attributes hold the facts of the error, such as a plan version.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

#: Most characters of a line that are shown around an error, because a request body may be one line of
#: megabytes.
_MAX_SHOWN = 1_000


@dataclass(frozen=True, slots=True)
class Location:
    """Place of an error in a text.

    Attributes:
        line: 1-based line.
        column: 1-based column.
        text: The whole text, of which the error shows only this line.
        length: Number of characters to underline.
        file: Name of the file that holds the text, or None if the text is not in a file.
    """

    line: int
    column: int
    text: str = ""
    length: int = 1
    file: str | None = None

    def underlined(self) -> str:
        """Return the line, or a part of it if it is very long, with carets below; empty without a line."""
        lines = self.text.splitlines()
        if not 0 < self.line <= len(lines):
            return ""
        line, column, length = lines[self.line - 1], self.column - 1, max(self.length, 1)
        if len(line) > _MAX_SHOWN:
            start = max(column - _MAX_SHOWN // 2, 0)
            line, column = line[start : start + _MAX_SHOWN], column - start
            length = min(length, _MAX_SHOWN)
        return f"{line}\n{' ' * column}{'^' * length}"


class SluiceError(Exception):
    """Base class of all errors that Sluice raises on purpose.

    Args:
        primary: What is wrong, lower case, no full stop.
        detail: Facts, in sentences.
        hint: What to write or do instead, in sentences.
        location: Place of the error in a text of the user; None if it is unknown.
        at: Syntax node, token or offsets of the place; code that knows the text makes ``location`` from it.
        path: Place in a JSON or YAML document, such as ``("streams", 0, "columns")``.
    """

    code: ClassVar[str] = "error"

    def __init__(
        self,
        primary: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        location: Location | None = None,
        at: object = None,
        path: tuple[str | int, ...] = (),
    ) -> None:
        super().__init__(primary)
        self.primary = primary
        self.detail = detail
        self.hint = hint
        self.location = location
        self.at = at
        self.path = path

    def __str__(self) -> str:
        where = ""
        if self.location is not None:
            file = f"{self.location.file}:" if self.location.file else ""
            where = f"{file}{self.location.line}:{self.location.column}: "
        lines = [where + self.primary]
        if self.location is not None and (picture := self.location.underlined()):
            lines.append("\n".join("    " + line for line in picture.splitlines()))
        if self.detail:
            lines.append(f"  detail: {self.detail}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


@contextmanager
def error_path(*path: str | int) -> Iterator[None]:
    """Prepend a document path to the path of any error that is raised inside the block."""
    try:
        yield
    except SluiceError as error:
        error.path = (*path, *error.path)
        raise


class InvalidInput(SluiceError):
    """The request is invalid."""

    code = "invalid-input"


class NotFound(SluiceError):
    """No resource has the name in the request path."""

    code = "not-found"


class Conflict(SluiceError):
    """The request conflicts with the current state."""

    code = "conflict"


class Overloaded(SluiceError):
    """The service has too much work now; the client can retry later."""

    code = "overloaded"


class Unavailable(SluiceError):
    """A part of the service is down."""

    code = "unavailable"


class InternalError(SluiceError):
    """Sluice has a bug, or its files are damaged."""

    code = "internal-error"


class StreamNotFound(NotFound):
    """No stream has that name."""

    code = "stream-not-found"


class QueryNotFound(NotFound):
    """No query has that name."""

    code = "query-not-found"


class NameTaken(Conflict):
    """A stream or query of that name exists already."""

    code = "name-taken"


class StreamInUse(Conflict):
    """Queries still use the stream."""

    code = "stream-in-use"


class StalePlanVersion(Conflict):
    """``If-Match`` names a plan version that is not the current one.

    Attributes:
        plan_version: The current version, or None if it is unknown.
    """

    code = "stale-plan-version"
    plan_version: int | None = None


#: Detail of an error about an epoch that is no longer current.
NEWER_JOB = "A newer job, of this engine or of another one, writes to the data directory now."


class FencedOut(Unavailable):
    """A newer job writes to the data directory, so an older job or engine must not write to it any more."""

    code = "fenced-out"


class BatchDiffers(InternalError):
    """A committed batch was repeated with other input or other results."""

    code = "batch-differs"


class PlanVersionNotFound(NotFound):
    """No plan has that version number."""

    code = "plan-version-not-found"


class MigrationNotFound(NotFound):
    """No migration has that id."""

    code = "migration-not-found"


class InputNotFound(NotFound):
    """The stream has no listed input at that position."""

    code = "input-not-found"


class KeyNotFound(NotFound):
    """No valid key has that name."""

    code = "key-not-found"


class KeyExists(Conflict):
    """A valid key of that name exists already."""

    code = "key-exists"


class IdempotencyKeyReused(Conflict):
    """An idempotency key was already used for a different request."""

    code = "idempotency-key-reused"


class InvalidCatalogUrl(InvalidInput):
    """The URL does not name a database that can hold a catalog."""

    code = "invalid-catalog-url"


class CatalogDown(Unavailable):
    """The catalog's database cannot be opened, read or written now."""

    code = "catalog-down"


class CatalogBusy(CatalogDown):
    """Another thread of this process has written to the catalog for too long."""

    code = "catalog-busy"


class CatalogDamaged(CatalogDown):
    """The catalog's file is damaged."""

    code = "catalog-damaged"


class CatalogVersionMismatch(Unavailable):
    """The catalog's schema does not match this version of Sluice."""

    code = "catalog-version-mismatch"


class InvariantBroken(InternalError):
    """An invariant is violated."""

    code = "invariant-broken"


class CorruptDocument(InternalError):
    """A stored document cannot be decoded."""

    code = "corrupt-document"


class InvalidDuration(InvalidInput):
    """A text is not a length of time."""

    code = "invalid-duration"


class UnknownType(InvalidInput):
    """A text is not the name of a column type."""

    code = "unknown-type"
