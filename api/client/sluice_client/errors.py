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

Leaves have the names that the service's own errors have, and ``code`` is the last part of the problem's
``type``. A type that this version does not know is raised as the class of its status, with its ``code``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import msgspec


class SluiceError(Exception):
    """Base of every error that the client raises on purpose."""


class NoAnswer(SluiceError):
    """The service could not be reached in time, or its answer was cut off.

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
        extra: Extra of ``sluice-client`` that installs it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f'{package} is not installed\n  hint: pip install "sluice-client[{extra}]"')
        self.package = package


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a request.

    Attributes:
        detail: What is wrong.
        explanation: Facts, in sentences.
        hint: What to write or do instead.
        pointer: JSON Pointer into the request's body.
        parameter: Query parameter, path segment or header at fault.
        line: 1-based line of a text such as CQL.
        column: 1-based column in that line.
        underline: The line, and carets below the culprit.
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

    Its text has the carets below the culprit, where there is one, and the hint.

    Attributes:
        code: Last part of the problem's type; stable.
        title: The kind of problem in words.
        status: HTTP status.
        detail: What is wrong with this request.
        explanation: Facts, in sentences.
        hint: What to write or do instead.
        faults: What is wrong where.
        plan_version: Current plan version, of `StalePlanVersion`.
        retry_after_s: Seconds after which another attempt is worth it, where the service says so.
    """

    code: ClassVar[str] = "problem"

    def __init__(self, document: ProblemDocument, retry_after_s: float | None = None) -> None:
        self.code = document.code  # type: ignore[misc]  # of an unknown type it is not the class's
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

    code = "invalid-input"


class NotFound(Problem):
    """The path names nothing."""

    code = "not-found"


class Conflict(Problem):
    """The request collides with what exists."""

    code = "conflict"


class Overloaded(Problem):
    """The service takes no more now."""

    code = "overloaded"


class Unavailable(Problem):
    """A part of the service is down."""

    code = "unavailable"


class InternalError(Problem):
    """The service itself is wrong."""

    code = "internal-error"


class AmbiguousColumn(InvalidInput):
    """Both streams have a column of that name."""

    code = "ambiguous-column"


class BodyTooLarge(InvalidInput):
    """The body is too big for one request."""

    code = "body-too-large"


class ChangedTwice(InvalidInput):
    """Two changes of a list are of one query."""

    code = "changed-twice"


class CqlSyntaxError(InvalidInput):
    """The text is not CQL."""

    code = "cql-syntax-error"


class EventRejected(InvalidInput):
    """An event does not fit its stream's schema; nothing of its request was taken."""

    code = "event-rejected"


class ExpressionFailed(InvalidInput):
    """An expression takes more time or memory than one may."""

    code = "expression-failed"


class Forbidden(InvalidInput):
    """The key does not allow this."""

    code = "forbidden"


class ForeignOrigin(InvalidInput):
    """The request comes from a page of another site."""

    code = "foreign-origin"


class InvalidChain(InvalidInput):
    """Boundaries that make no chain for the queries."""

    code = "invalid-chain"


class InvalidChanges(InvalidInput):
    """Several changes of a list cannot be made, so none was."""

    code = "invalid-changes"


class InvalidCursor(InvalidInput):
    """A cursor was not given out by this service for this query."""

    code = "invalid-cursor"


class InvalidDuration(InvalidInput):
    """A text is not a length of time."""

    code = "invalid-duration"


class InvalidGenerator(InvalidInput):
    """A generator's settings do not fit its stream."""

    code = "invalid-generator"


class InvalidMigration(InvalidInput):
    """A migration says nothing, or several things that exclude each other."""

    code = "invalid-migration"


class InvalidName(InvalidInput):
    """A name of a stream or query does not fit the pattern."""

    code = "invalid-name"


class InvalidOutput(InvalidInput):
    """A result column has no name of its own, a reserved one, or no type."""

    code = "invalid-output"


class InvalidProbe(InvalidInput):
    """There is no such way to search slices, or a family cannot be searched so."""

    code = "invalid-probe"


class InvalidRequest(InvalidInput):
    """The request does not fit the schema of its route."""

    code = "invalid-request"


class InvalidSink(InvalidInput):
    """A sink is invalid."""

    code = "invalid-sink"


class InvalidStatistics(InvalidInput):
    """A file of statistics says something invalid."""

    code = "invalid-statistics"


class InvalidStream(InvalidInput):
    """The parts of a stream's document do not fit together."""

    code = "invalid-stream"


class InvalidWindow(InvalidInput):
    """A window of zero or negative length, too long, given twice, or one that no pair can fit."""

    code = "invalid-window"


class KafkaUnsupported(InvalidInput):
    """A stream or sink is on Kafka, and the client library is not installed."""

    code = "kafka-unsupported"


class KeyTypeMismatch(InvalidInput):
    """Two key columns have types that do not compare exactly."""

    code = "key-type-mismatch"


class MalformedBody(InvalidInput):
    """The body is not JSON."""

    code = "malformed-body"


class MethodNotAllowed(InvalidInput):
    """The route has no such method."""

    code = "method-not-allowed"


class NoEquiKey(InvalidInput):
    """No condition compares a column of one stream with one of the other."""

    code = "no-equi-key"


class NoResultPunctuations(InvalidInput):
    """Result punctuations were asked for of a query that has none, or that does not run."""

    code = "no-result-punctuations"


class NoSharedChain(InvalidInput):
    """The family has no one chain whose slices could be split or merged."""

    code = "no-shared-chain"


class NoWindow(InvalidInput):
    """A stream of the query has no window."""

    code = "no-window"


class NotAcceptable(InvalidInput):
    """The client accepts no representation that the route has."""

    code = "not-acceptable"


class NotAnHttpStream(InvalidInput):
    """Events were posted to a stream whose rows come from elsewhere."""

    code = "not-an-http-stream"


class NotRewritable(InvalidInput):
    """A part of a query cannot be put anew by itself."""

    code = "not-rewritable"


class PlanRefused(InvalidInput):
    """The plan that a change leads to cannot run."""

    code = "plan-refused"


class RequestTooSlow(InvalidInput):
    """The request did not come in time."""

    code = "request-too-slow"


class SourceNotAllowed(InvalidInput):
    """A source's path is in no directory that sources may be in."""

    code = "source-not-allowed"


class SourceNotFound(InvalidInput):
    """A source's path does not exist."""

    code = "source-not-found"


class TypeMismatch(InvalidInput):
    """An operator or function does not take values of these types."""

    code = "type-mismatch"


class Unauthenticated(InvalidInput):
    """The request has no key, or none that is known here."""

    code = "unauthenticated"


class UnknownBoundary(InvalidInput):
    """A slice is named by a boundary that the chain does not have, or that cannot change."""

    code = "unknown-boundary"


class UnknownColumn(InvalidInput):
    """The stream has no such column, or nothing goes by the name before the dot."""

    code = "unknown-column"


class UnknownFamily(InvalidInput):
    """No family of queries has that id or key."""

    code = "unknown-family"


class UnknownFunction(InvalidInput):
    """No scalar function of that name."""

    code = "unknown-function"


class UnknownHost(InvalidInput):
    """The request is for a host that is none of this service's."""

    code = "unknown-host"


class UnknownPlanVersion(InvalidInput):
    """A migration is to lead back to a plan version that the history does not have."""

    code = "unknown-plan-version"


class UnknownQuery(InvalidInput):
    """A request names a query that does not run."""

    code = "unknown-query"


class UnknownStatistic(InvalidInput):
    """A statistic is about a stream or filter that is not there."""

    code = "unknown-statistic"


class UnknownStream(InvalidInput):
    """FROM names no registered stream."""

    code = "unknown-stream"


class UnknownType(InvalidInput):
    """A text names no column type."""

    code = "unknown-type"


class UnsupportedCql(InvalidInput):
    """A construct that CQL here does not have."""

    code = "unsupported-cql"


class UnsupportedMediaType(InvalidInput):
    """The body is of a media type that the route does not read."""

    code = "unsupported-media-type"


class UnusableFile(InvalidInput):
    """A file is corrupt or of another schema; the primary is the reason, told of the file."""

    code = "unusable-file"


class MigrationNotFound(NotFound):
    """No migration of that id."""

    code = "migration-not-found"


class PlanVersionNotFound(NotFound):
    """No plan of that version."""

    code = "plan-version-not-found"


class QueryNotFound(NotFound):
    """No query of that name."""

    code = "query-not-found"


class ResultsExpired(NotFound):
    """Results that follow the cursor are not kept any more."""

    code = "results-expired"


class RouteNotFound(NotFound):
    """No route has that path."""

    code = "route-not-found"


class StreamNotFound(NotFound):
    """No stream of that name."""

    code = "stream-not-found"


class IdempotencyKeyReused(Conflict):
    """An idempotency key came back with another request."""

    code = "idempotency-key-reused"


class NameTaken(Conflict):
    """A stream or query of that name exists."""

    code = "name-taken"


class NothingToSkip(Conflict):
    """No batch has failed so often that it may be voided."""

    code = "nothing-to-skip"


class RequestUnderWay(Conflict):
    """A request with the same idempotency key is being served."""

    code = "request-under-way"


class SinkInUse(Conflict):
    """Another query writes to the same place."""

    code = "sink-in-use"


class StalePlanVersion(Conflict):
    """``If-Match`` names another plan version than the current one."""

    code = "stale-plan-version"


class StreamInUse(Conflict):
    """Queries still use the stream."""

    code = "stream-in-use"


class IngestFull(Overloaded):
    """No more events are taken until some were read, or the disk has space."""

    code = "ingest-full"


class TooManyRequests(Overloaded):
    """More requests than one may send."""

    code = "too-many-requests"


class CatalogBusy(Unavailable):
    """Another thread of this process has written to the catalog for too long."""

    code = "catalog-busy"


class CatalogDown(Unavailable):
    """The catalog's database cannot be opened, read or written now."""

    code = "catalog-down"


class DiskFailed(Unavailable):
    """A file cannot be written: the disk is full, read-only or damaged."""

    code = "disk-failed"


class EngineNotReady(Unavailable):
    """The engine does not process batches now."""

    code = "engine-not-ready"


class EventLogDown(Unavailable):
    """The event log cannot be written or read."""

    code = "event-log-down"


class KafkaDown(Unavailable):
    """The brokers of a topic do not answer, or refuse us."""

    code = "kafka-down"


class SecretMissing(Unavailable):
    """The environment variable of a secret is not set, or its file cannot be read."""

    code = "secret-missing"


class StorageDown(Unavailable):
    """The object store cannot be reached, or refuses."""

    code = "storage-down"


class TooManyConnections(Unavailable):
    """There are as many connections as the service serves."""

    code = "too-many-connections"


class CorruptResults(InternalError):
    """Result files do not hold what their batch's manifest says."""

    code = "corrupt-results"


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
    """Return the error that an answer stands for.

    Args:
        status: HTTP status, 400 or more.
        reason: Its words.
        body: Body of the answer; what is not a problem comes from a proxy.
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
