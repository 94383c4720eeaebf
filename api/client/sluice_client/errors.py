"""Errors of the client: a class for each type of problem that the service answers with.

    SluiceError
    * NoAnswer                     the service could not be reached, or its answer was cut off
    * MissingExtra                 a package of an extra, such as pandas, is not installed
    * Problem                      the service answered with a problem (RFC 9457)
      * InvalidInput               422, and 400 to 431
      * NotFound                   404, 410
      * Conflict                   409, 412
      * Overloaded                 429
      * Unavailable                503
      * InternalError              500

Subclasses at the lowest level have the names of the service's own errors. ``code`` is the last part of the
problem's ``type`` and is derived from the class's name: ``StreamNotFound`` is ``stream-not-found``. A problem
with an unknown code is raised as the class of its HTTP status, and keeps its ``code``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec


class SluiceError(Exception):
    """Base of all errors that the client itself raises."""


class NoAnswer(SluiceError):
    """The service could not be reached in time, or its answer was incomplete.

    Args:
        url: Base of the service.
        reason: Description of the last attempt.
        attempts: Number of attempts.
    """

    def __init__(self, url: str, reason: str, attempts: int) -> None:
        tried = f" after {attempts} attempts" if attempts > 1 else ""
        super().__init__(f'no answer from "{url}"{tried}: {reason}')
        self.url = url
        self.reason = reason
        self.attempts = attempts


class MissingExtra(SluiceError):
    """A package that a method needs is not installed.

    Args:
        package: The package.
        extra: Extra of ``sluice-client`` that installs the package.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f'{package} is not installed\n  hint: pip install "sluice-client[{extra}]"')
        self.package = package


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of a request.

    Attributes:
        detail: The fault.
        explanation: Facts, in sentences.
        hint: What to write or do instead.
        pointer: JSON Pointer into the request's body.
        parameter: Query parameter, path segment or header at fault.
        line: 1-based line in the text, such as a query's CQL.
        column: 1-based column in that line.
        underline: The line, with carets below the fault.
    """

    detail: str
    explanation: str | None = None
    hint: str | None = None
    pointer: str | None = None
    parameter: str | None = None
    line: int | None = None
    column: int | None = None
    underline: str | None = None


class ProblemDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Body of a problem, as the service sends it."""

    code: str
    title: str
    status: int
    detail: str
    instance: str = ""
    explanation: str | None = None
    hint: str | None = None
    plan_version: int | None = None
    errors: tuple[Fault, ...] = ()


class Problem(SluiceError):
    """The service refused the request, or failed.

    The exception's text includes the hint and, if the fault is in a text, the line with carets below the
    fault.

    Attributes:
        code: Last part of the problem's type; stable.
        title: The kind of problem in words.
        status: HTTP status.
        detail: Fault of this request.
        explanation: Facts, in sentences.
        hint: What to write or do instead.
        faults: All faults, each with its place.
        plan_version: Current plan version, of `StalePlanVersion`.
        retry_after_s: Seconds to wait before the next attempt, if the service states them.
    """

    code: str = "problem"

    def __init_subclass__(cls) -> None:
        cls.code = re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    def __init__(self, document: ProblemDocument, retry_after_s: float | None = None) -> None:
        self.code = document.code
        self.title = document.title
        self.status = document.status
        self.detail = document.detail
        self.explanation = document.explanation
        self.hint = document.hint
        self.faults = document.errors
        self.plan_version = document.plan_version
        self.retry_after_s = retry_after_s
        super().__init__("\n".join(self._lines()))

    def _lines(self) -> Iterator[str]:
        first = self.faults[0] if self.faults else None
        place = "" if first is None or first.line is None else f"{first.line}:{first.column}: "
        yield place + self.detail
        if first is not None and first.underline:
            yield from (f"    {line}" for line in first.underline.splitlines())
        for fault in self.faults:
            if fault.detail != self.detail:
                where = fault.pointer or fault.parameter
                yield f"  {fault.detail}" + (f" ({where})" if where else "")
        if self.explanation:
            yield f"  detail: {self.explanation}"
        if hint := self.hint or (first.hint if first is not None else None):
            yield f"  hint: {hint}"


class InvalidInput(Problem):
    """The request is invalid."""


class NotFound(Problem):
    """There is no object with the name in the path."""


class Conflict(Problem):
    """The request conflicts with the current state."""


class Overloaded(Problem):
    """The service accepts no more work now."""


class Unavailable(Problem):
    """A part of the service is down."""


class InternalError(Problem):
    """The service itself has a defect."""


class AmbiguousColumn(InvalidInput):
    """The column exists in more than one stream, so its name is ambiguous."""


class BodyTooLarge(InvalidInput):
    """The body is too large for one request."""


class ChangedTwice(InvalidInput):
    """Two changes of a list are for the same query."""


class CqlSyntaxError(InvalidInput):
    """The text is not CQL."""


class EventRejected(InvalidInput):
    """An event does not fit its stream's schema; no event of its request was accepted."""


class ExpressionFailed(InvalidInput):
    """An expression takes more time or memory than allowed."""


class Forbidden(InvalidInput):
    """The key does not allow this."""


class ForeignOrigin(InvalidInput):
    """The request comes from a page of another site."""


class InvalidChain(InvalidInput):
    """The boundaries do not form a chain for the queries."""


class InvalidChanges(InvalidInput):
    """Some changes of a list are invalid, so no change was made."""


class InvalidCursor(InvalidInput):
    """The cursor is not from results of this query and service."""


class InvalidDuration(InvalidInput):
    """A text is not a length of time."""


class InvalidGenerator(InvalidInput):
    """A generator's settings do not fit its stream."""


class InvalidMigration(InvalidInput):
    """A migration request is empty, or parts of it exclude each other."""


class InvalidName(InvalidInput):
    """A name of a stream or query does not fit the pattern."""


class InvalidOutput(InvalidInput):
    """A result column has a duplicate or reserved name, or no type."""


class InvalidProbe(InvalidInput):
    """This search method for slices does not exist, or the family does not support it."""


class InvalidRequest(InvalidInput):
    """The request does not fit the schema of its route."""


class InvalidSink(InvalidInput):
    """A sink is invalid."""


class InvalidStatistics(InvalidInput):
    """A file of statistics has an invalid entry."""


class InvalidStream(InvalidInput):
    """The parts of a stream's document do not fit together."""


class InvalidWindow(InvalidInput):
    """A window has zero or negative length, is too long, is given twice, or can contain no pair."""


class KafkaUnsupported(InvalidInput):
    """A stream or sink uses Kafka, but the client library is not installed."""


class KeyTypeMismatch(InvalidInput):
    """Values of the two key columns' types cannot be compared exactly."""


class MalformedBody(InvalidInput):
    """The body is not JSON."""


class MethodNotAllowed(InvalidInput):
    """The route has no such method."""


class NoEquiKey(InvalidInput):
    """No condition compares a column of one stream with a column of the other."""


class NoResultPunctuations(InvalidInput):
    """Result punctuations were requested of a query that does not select them, or that is paused."""


class NoSharedChain(InvalidInput):
    """The family does not have a single chain whose slices could be split or merged."""


class NoWindow(InvalidInput):
    """A stream of the query has no window."""


class NotAcceptable(InvalidInput):
    """The client accepts no representation that the route has."""


class NotAnHttpStream(InvalidInput):
    """Events were posted to a stream whose source is not HTTP."""


class NotRewritable(InvalidInput):
    """A part of a query cannot be changed on its own."""


class PlanRefused(InvalidInput):
    """The plan that would result from a change cannot run."""


class RequestTooSlow(InvalidInput):
    """The request did not arrive in time."""


class SourceNotAllowed(InvalidInput):
    """A source's path is outside the directories that sources may read."""


class SourceNotFound(InvalidInput):
    """A source's path does not exist."""


class TypeMismatch(InvalidInput):
    """An operator or function does not take values of these types."""


class Unauthenticated(InvalidInput):
    """The request has no key, or an unknown key."""


class UnknownBoundary(InvalidInput):
    """A request names a slice boundary that the chain does not have or that cannot be changed."""


class UnknownColumn(InvalidInput):
    """The stream has no such column, or the name before the dot is unknown."""


class UnknownFamily(InvalidInput):
    """No family of queries has this id or key."""


class UnknownFunction(InvalidInput):
    """No scalar function has this name."""


class UnknownHost(InvalidInput):
    """The request names a host that does not belong to this service."""


class UnknownPlanVersion(InvalidInput):
    """The plan version that a migration should restore is not in the history."""


class UnknownQuery(InvalidInput):
    """A request names a query that does not run."""


class UnknownStatistic(InvalidInput):
    """A statistic is about a stream or filter that does not exist."""


class UnknownStream(InvalidInput):
    """FROM names no registered stream."""


class UnknownType(InvalidInput):
    """A text is not the name of a column type."""


class UnsupportedCql(InvalidInput):
    """The text has a construct that Sluice's CQL does not support."""


class UnsupportedMediaType(InvalidInput):
    """The route does not read bodies of this media type."""


class UnusableFile(InvalidInput):
    """A file is corrupt or has a different schema; the message states the reason."""


class MigrationNotFound(NotFound):
    """No migration has this id."""


class PlanVersionNotFound(NotFound):
    """The plan has no such version."""


class QueryNotFound(NotFound):
    """No query has this name."""


class ResultsExpired(NotFound):
    """Results after the cursor are no longer kept."""


class RouteNotFound(NotFound):
    """No route has that path."""


class StreamNotFound(NotFound):
    """No stream has this name."""


class IdempotencyKeyReused(Conflict):
    """An idempotency key was used again for another request."""


class NameTaken(Conflict):
    """A stream or query with this name exists already."""


class NothingToSkip(Conflict):
    """No batch that could be voided has failed."""


class RequestUnderWay(Conflict):
    """A request with the same idempotency key is being served."""


class SinkInUse(Conflict):
    """Another query writes to the same destination."""


class StalePlanVersion(Conflict):
    """``If-Match`` names another plan version than the current one."""


class StreamInUse(Conflict):
    """Queries still use the stream."""


class IngestFull(Overloaded):
    """No more events are accepted until a batch has read some, or until there is space on the disk."""


class TooManyRequests(Overloaded):
    """The client has exceeded its rate limit."""


class CatalogBusy(Unavailable):
    """Another thread of this process has written to the catalog for too long."""


class CatalogDown(Unavailable):
    """The catalog's database cannot be opened, read or written now."""


class DiskFailed(Unavailable):
    """A file cannot be written: the disk is full, read-only or damaged."""


class EngineNotReady(Unavailable):
    """The engine does not process batches now."""


class EventLogDown(Unavailable):
    """The event log cannot be written or read."""


class KafkaDown(Unavailable):
    """The brokers of a topic do not answer, or they refuse the connection."""


class SecretMissing(Unavailable):
    """The environment variable of a secret is not set, or its file cannot be read."""


class StorageDown(Unavailable):
    """The object store cannot be reached, or it refuses the request."""


class TooManyConnections(Unavailable):
    """The service has reached its maximum number of connections."""


class CorruptResults(InternalError):
    """Result files do not match their batch's manifest."""


def _classes(base: type[Problem]) -> Iterator[type[Problem]]:
    for leaf in base.__subclasses__():
        yield leaf
        yield from _classes(leaf)


_BY_CODE: Mapping[str, type[Problem]] = {kind.code: kind for kind in _classes(Problem)}
_BY_STATUS: Mapping[int, type[Problem]] = {
    404: NotFound,
    409: Conflict,
    410: NotFound,
    412: Conflict,
    429: Overloaded,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def problem_of(status: int, reason: str, body: bytes, retry_after: str | None = None) -> Problem:
    """Return the exception for an error answer.

    Args:
        status: HTTP status, 400 or more.
        reason: Reason phrase of the status.
        body: Body of the answer; if it is not a problem document, it comes from a proxy.
        retry_after: Header ``Retry-After``.
    """
    try:
        document = msgspec.json.decode(body, type=ProblemDocument)
    except msgspec.DecodeError:
        detail = f"the service answered {status} {reason}"
        document = ProblemDocument(code=f"http-{status}", title=reason, status=status, detail=detail)
    kind = _BY_CODE.get(document.code) or _BY_STATUS.get(status)
    if kind is None:
        kind = InvalidInput if status < 500 else InternalError
    seconds = float(retry_after) if retry_after is not None and retry_after.isdigit() else None
    return kind(document, seconds)
