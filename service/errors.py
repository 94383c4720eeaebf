"""Errors of the service.

InvalidInput
* BackupRefused         a data directory cannot be backed up, or a given directory is unusable
* ChangedTwice          a list has two changes of one query
* DataDirUnusable       the data directory cannot be made or written
* EventRejected         an event does not fit its stream's schema
* InvalidChanges        some changes of a list cannot be made, so the list is refused
* InvalidCursor         a cursor was not given out by this service for this query
* InvalidGenerator      a generator's settings do not fit its stream
* InvalidKey            the name, the scopes or the rate limit requested for an API key are invalid
* InvalidMigration      a migration requests no change, or several changes that exclude each other
* InvalidName           a name of a stream or query does not fit the pattern
* InvalidSetting        a ``SLUICE_`` variable or option has an invalid value
* InvalidSink           the definition of a sink is invalid
* InvalidStatistics     a file of statistics contains something invalid
* InvalidStream         values in a stream's document are invalid or do not fit together
* InvalidWorkload       a workload file contains something invalid
* InvalidYaml           a file cannot be read as YAML
* FileRefused           a file is bad, and its stream has on_error: stop
* MoveRefused           a data directory cannot be moved now, or cannot be moved to the named place
* KafkaUnsupported      a stream or sink uses Kafka, but the client library is not installed
* NoDataDir             the directory is not a data directory
* NotAnHttpStream       events were posted to a stream that reads its rows from another source
* NoResultPunctuations  result punctuations were requested of a query that has none, or that does not run
* OtherWorkload         the output directory belongs to another workload
* PlanRefused           the plan that results from a change cannot run
* RequestRefused        the service refused a request; the error text comes from the service
* SourceNotAllowed      a source's path is outside the directories that sources may read
* SourceNotFound        a source's path does not exist
* TokensUnsupported     a token issuer is configured, but the library that verifies tokens is not installed
* UnknownPlanVersion    a migration requests a rollback to a plan version that is not in the history
* UnknownQuery          a request names a query that does not run
* UnreadableInput       a file or text given to a command cannot be read
* UnusableFile          a file is corrupt or has another schema
* WorkloadMissing       an option needs a workload file, but none is given
NotFound
* ResultsExpired        results after the cursor are no longer kept
Conflict
* BackupNotMade         the data directory changed too fast for a backup, or another backup of it runs
* BucketsFixed          the number of buckets was fixed by the checkpoint's first batch
* CatalogInUse          another engine holds the lease of the catalog
* DataDirInUse          another engine holds the data directory
* NotRepairable         a data directory cannot be repaired
* NothingToSkip         no batch that could be voided has failed
* SinkInUse             another query writes to the same place
Overloaded
* IngestFull            no more events are accepted until a batch has read some, or the disk has space again
Unavailable
* BatchVoided           a batch was voided while it ran
* BackupDamaged         a file of a backup is missing or was changed
* CatalogMissing        the catalog is missing, but data files that it described still exist
* CheckpointAhead       the checkpoint has batches that the catalog does not have
* CheckpointDamaged     an entry of Spark's logs is incomplete, or Spark's state cannot be read
* CheckpointLost        the catalog has batches that the checkpoint lacks and cannot repeat
* ClassArchiveNotMade   the JVM could not make an archive of its classes
* CorruptInput          a file cannot be read, although it was readable when listed
* DataDirMoved          the data directory was moved elsewhere, or a move to it is not complete
* DemoDataMissing       the package with the demo's data is not installed
* DiskFailed            a file cannot be written: the disk is full, read-only or damaged
* DemoFailed            the engine of the demo did not start, or stopped
* EngineFailed          the Spark job has ended with an error
* EventLogDown          the event log cannot be written or read
* InputChanged          a file was changed after it was listed
* IssuerDown            the public keys of a token issuer cannot be read
* JavaMissing           no Java installation of the required version was found
* KafkaDown             the brokers of a topic do not answer, or refuse the service
* MessageRejected       a message is not an event of its stream
* MessagesLost          messages that a batch has to read are no longer in their topic
* OtherLife             catalog, data directory and checkpoint do not belong together
* SecretMissing         the environment variable of a secret is not set, or its file cannot be read
* ServiceFailed         the service could not be reached, or failed
* WorkerDiffers         a worker's Python, packages or clock differ from the engine's, or no worker answers
* UserUnknown           the user that the process runs as has no name, and Spark does not start without one
* StorageDiffers        workers and the engine do not see the same files
* SinkFailed            a sink did not accept a delivery
InternalError
* BrokenPayload         a bucket did not receive each packet of a payload exactly once
* CorruptResults        result files differ from their batch's manifest
* MoveFailed            a move wrote data that differs from what it read
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final, Literal

from catalog.errors import (
    Conflict,
    InternalError,
    InvalidInput,
    NotFound,
    Overloaded,
    SluiceError,
    Unavailable,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Limits that refuse posted events.
IngestLimit = Literal["rows", "bytes", "disk"]
#: Numbers of system errors about files. All other system errors are about connections, such as to the JVM.
_OF_THE_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.EACCES)
_CORRUPT: Final = re.compile(r"\[corrupt input stream=(\d+) position=(\d+)\]")


class BackupRefused(InvalidInput):
    """A data directory cannot be backed up, or a directory given to a backup or restore is unusable."""

    code = "backup-refused"


class ChangedTwice(InvalidInput):
    """A list has two changes of one query."""

    code = "changed-twice"


class DataDirUnusable(InvalidInput):
    """The data directory cannot be made or written."""

    code = "data-dir-unusable"


class EventRejected(InvalidInput):
    """An event does not fit its stream's schema; no event of its request was accepted.

    Attributes:
        index: 0-based index of the event in its request.
        field: Field that does not fit, or None if the event as a whole does not.
        expected: Description of the expected value.
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


class FileRefused(InvalidInput):
    """A file is bad, and its stream has ``on_error: stop``: the batch with the file is not committed."""

    code = "file-refused"

    def __init__(self, stream: str, file: str, reason: str):
        named = f'file "{file}" of stream "{stream}"'
        super().__init__(
            # If a batch found the file bad, the reason begins with the file's name already.
            reason if reason.startswith(named) else f"{named} is bad: {reason}",
            detail="The stream is set to stop at bad files (on_error: stop).",
            hint="Correct the file, then start the run again.",
        )


class InvalidChanges(InvalidInput):
    """Some changes of a list cannot be made, so the whole list is refused.

    Attributes:
        errors: Error of each change that cannot be made; the error's path is the change's place in the list.
    """

    code = "invalid-changes"

    def __init__(self, errors: Sequence[SluiceError], changes: int) -> None:
        super().__init__(
            f"{len(errors)} of {changes} changes cannot be made",
            detail="None of the changes was made.",
            hint=f"The first error: {errors[0].primary}.",
        )
        self.errors = tuple(errors)


class InvalidCursor(InvalidInput):
    """A cursor was not given out by this service for this query."""

    code = "invalid-cursor"


class InvalidGenerator(InvalidInput):
    """A generator's settings do not fit its stream."""

    code = "invalid-generator"


class InvalidMigration(InvalidInput):
    """A migration requests no change, or several changes that exclude each other."""

    code = "invalid-migration"


class InvalidName(InvalidInput):
    """A name of a stream or query does not fit the pattern."""

    code = "invalid-name"


class InvalidSetting(InvalidInput):
    """A ``SLUICE_`` variable or option has an invalid value."""

    code = "invalid-setting"


class InvalidSink(InvalidInput):
    """The definition of a sink is invalid."""

    code = "invalid-sink"


class InvalidStatistics(InvalidInput):
    """A file of statistics contains something invalid."""

    code = "invalid-statistics"


class InvalidStream(InvalidInput):
    """Values in a stream's document are invalid or do not fit together."""

    code = "invalid-stream"


class InvalidWorkload(InvalidInput):
    """A workload file contains something invalid."""

    code = "invalid-workload"


class InvalidYaml(InvalidInput):
    """A file cannot be read as YAML."""

    code = "invalid-yaml"


class MoveRefused(InvalidInput):
    """A data directory cannot be moved in its present state, or cannot be moved to the named place."""

    code = "move-refused"


class NoDataDir(InvalidInput):
    """The directory is not a data directory."""

    code = "no-data-dir"


class NotAnHttpStream(InvalidInput):
    """Events were posted to a stream that reads its rows from another source."""

    code = "not-an-http-stream"

    def __init__(self, stream: str, source_type: str) -> None:
        super().__init__(
            f'stream "{stream}" takes no posted events',
            detail=f'Its source is of type "{source_type}".',
            hint='Register a stream with source {"type": "http"} and post to that.',
        )


class NoResultPunctuations(InvalidInput):
    """Result punctuations were requested of a query that has none, or that does not run."""

    code = "no-result-punctuations"


class OtherWorkload(InvalidInput):
    """The output directory belongs to another workload."""

    code = "other-workload"


class PlanRefused(InvalidInput):
    """The plan that results from a change cannot run."""

    code = "plan-refused"


class RequestRefused(InvalidInput):
    """The service refused a request; the error text comes from the service."""

    code = "request-refused"


class SourceNotAllowed(InvalidInput):
    """A source's path is outside the directories that sources may read."""

    code = "source-not-allowed"


class SourceNotFound(InvalidInput):
    """A source's path does not exist."""

    code = "source-not-found"


class UnknownPlanVersion(InvalidInput):
    """A migration requests a rollback to a plan version that is not in the history."""

    code = "unknown-plan-version"


class UnknownQuery(InvalidInput):
    """A request names a query that does not run."""

    code = "unknown-query"


class UnreadableInput(InvalidInput):
    """A file or text given to a command cannot be read."""

    code = "unreadable-input"


class UnusableFile(InvalidInput):
    """A file is corrupt or has another schema; the primary text is the reason, without the file's name."""

    code = "unusable-file"


class WorkloadMissing(InvalidInput):
    """An option needs a workload file, but none is given."""

    code = "workload-missing"


class ResultsExpired(NotFound):
    """Results after the cursor are no longer kept.

    Attributes:
        dropped: Number of results of the query that are no longer kept.
        kept_since_us: Wall clock from which results are kept, µs UTC.
    """

    code = "results-expired"

    def __init__(self, cursor: str, dropped: int, kept_since_us: int) -> None:
        since = (_EPOCH + timedelta(microseconds=kept_since_us)).strftime("%Y-%m-%d %H:%M:%S UTC")
        super().__init__(
            f'results after cursor "{cursor}" are not kept any more',
            detail=f"{dropped} results of this query were dropped; results of batches since {since} "
            "are kept.",
            hint="Read without a cursor to start at the first result that is kept. The setting "
            "SLUICE_RESULT_RETENTION says how long results are kept.",
        )
        self.dropped = dropped
        self.kept_since_us = kept_since_us


class BackupNotMade(Conflict):
    """The data directory changed too fast for a backup, or another backup of it runs."""

    code = "backup-not-made"


class BucketsFixed(Conflict):
    """The number of buckets was fixed by the checkpoint's first batch."""

    code = "buckets-fixed"


class NothingToSkip(Conflict):
    """No batch that could be voided has failed."""

    code = "nothing-to-skip"


class DataDirInUse(Conflict):
    """Another engine holds the data directory."""

    code = "data-dir-in-use"


class CatalogInUse(DataDirInUse):
    """Another engine holds the lease of the catalog."""

    code = "catalog-in-use"


class NotRepairable(Conflict):
    """A data directory cannot be repaired."""

    code = "not-repairable"


class SinkInUse(Conflict):
    """Another query writes to the same place."""

    code = "sink-in-use"


class IngestFull(Overloaded):
    """No more events are accepted until a batch has read some, or the disk has space again.

    Attributes:
        limit: The limit that was reached: ``rows``, ``bytes`` or ``disk``.
        retry_after_s: Seconds after which a retry is worthwhile.
    """

    code = "ingest-full"

    def __init__(
        self,
        primary: str,
        *,
        limit: IngestLimit,
        detail: str,
        hint: str,
        retry_after_s: int,
    ) -> None:
        super().__init__(primary, detail=detail, hint=hint)
        self.limit = limit
        self.retry_after_s = retry_after_s


class OtherLife(Unavailable):
    """Catalog, data directory and checkpoint do not belong together."""

    code = "other-life"


class BackupDamaged(Unavailable):
    """A file of a backup is missing or was changed."""

    code = "backup-damaged"


class DataDirMoved(OtherLife):
    """The data directory was moved elsewhere, or a move to it is not complete."""

    code = "data-dir-moved"


class CatalogMissing(OtherLife):
    """The catalog is missing, but data files that it described still exist."""

    code = "catalog-missing"


class CheckpointAhead(OtherLife):
    """The checkpoint has batches that the catalog does not have."""

    code = "checkpoint-ahead"


class CheckpointDamaged(OtherLife):
    """An entry of Spark's logs is incomplete, or Spark's state cannot be read."""

    code = "checkpoint-damaged"


class CheckpointLost(OtherLife):
    """The catalog has batches that the checkpoint lacks and cannot repeat."""

    code = "checkpoint-lost"


class BatchVoided(Unavailable):
    """A batch was voided while it ran, so its attempt is not committed."""

    code = "batch-voided"


class ClassArchiveNotMade(Unavailable):
    """The JVM could not make an archive of its classes."""

    code = "class-archive-not-made"


class CorruptInput(Unavailable):
    """A listed file cannot be read; batches skip the file only once the catalog has recorded it as set aside.

    Attributes:
        stream_id: Stream of the file.
        position: The file's position in its stream; ``store.source_files.set_verdict`` needs it to set the
            file aside.
        file: Path of the file.
        reason: Reason why the file cannot be read.
    """

    code = "corrupt-input"
    found: ClassVar[str] = "cannot be read"
    advice: ClassVar[str] = "Set the file aside, or restore its bytes and start again."

    def __init__(self, stream: str, stream_id: int, position: int, file: str, reason: str):
        super().__init__(
            f'file "{file}" of stream "{stream}" {self.found}: {reason}',
            detail="The file could be read when it was listed. "
            f"[corrupt input stream={stream_id} position={position}]",
            hint=self.advice,
        )
        self.stream_id = stream_id
        self.position = position
        self.file = file
        self.reason = reason


def find_corrupt_input(text: str) -> tuple[int, int] | None:
    """Return (stream id, position) of a `CorruptInput` found in a text such as a trace, or None."""
    match = _CORRUPT.search(text)
    return None if match is None else (int(match[1]), int(match[2]))


class DemoDataMissing(Unavailable):
    """The package with the demo's data is not installed."""

    code = "demo-data-missing"


class DemoFailed(Unavailable):
    """The engine of the demo did not start, or stopped."""

    code = "demo-failed"


class DiskFailed(Unavailable):
    """A file cannot be written: the disk is full, read-only or damaged."""

    code = "disk-failed"


def disk_failed(error: OSError) -> DiskFailed | None:
    """Convert a system error to `DiskFailed`, or return None if the error is not about a disk.

    >>> disk_failed(OSError(errno.ENOSPC, "No space left on device", "/data/x")).primary
    'no space left on device: "/data/x"'
    """
    if error.errno not in _OF_THE_DISK:
        return None
    file = f': "{error.filename}"' if error.filename else ""
    reason = (error.strerror or "").strip()
    return DiskFailed(
        f"{reason[:1].lower()}{reason[1:]}{file}",
        hint="Free some space, or make the file system writable, and start again; finished work is kept.",
    )


class EngineFailed(Unavailable):
    """The Spark job has ended with an error."""

    code = "engine-failed"


class EventLogDown(Unavailable):
    """The event log cannot be written or read."""

    code = "event-log-down"


class InputChanged(CorruptInput):
    """A file was changed after it was listed, so a repeated batch would read different rows."""

    code = "input-changed"
    found: ClassVar[str] = "changed after it was listed"
    advice: ClassVar[str] = "Write new rows to new files, moved into place when complete."


class JavaMissing(Unavailable):
    """No Java installation of the required version was found."""

    code = "java-missing"


class UserUnknown(Unavailable):
    """The user that the process runs as has no name, and Spark does not start without one."""

    code = "user-unknown"


class KafkaDown(Unavailable):
    """The brokers of a topic do not answer, or refuse the service.

    Attributes:
        stream_id: Id of the stream that reads the topic, or None if a sink writes to the topic.
    """

    code = "kafka-down"

    def __init__(self, primary: str, *, detail: str, hint: str, stream_id: int | None = None):
        super().__init__(primary, detail=detail, hint=hint)
        self.stream_id = stream_id


class MessageRejected(Unavailable):
    """A message is not an event of its stream, and the stream does not set such messages aside."""

    code = "message-rejected"


class MessagesLost(Unavailable):
    """Messages that a batch has to read are no longer in their topic."""

    code = "messages-lost"


class SecretMissing(Unavailable):
    """The environment variable of a secret is not set, or its file cannot be read."""

    code = "secret-missing"


class ServiceFailed(Unavailable):
    """The service could not be reached, or failed."""

    code = "service-failed"


class WorkerDiffers(Unavailable):
    """A worker's Python, packages or clock differ from the engine's, or no worker answers."""

    code = "worker-differs"


class StorageDiffers(Unavailable):
    """Workers and the engine do not see the same files."""

    code = "storage-differs"

    def __init__(self, primary: str, *, detail: str) -> None:
        super().__init__(
            primary,
            detail=detail,
            hint="Give the service a SLUICE_STORAGE_URL that all machines reach, and a data directory on a "
            "mount that all of them share.",
        )


class SinkFailed(Unavailable):
    """A sink did not accept a delivery."""

    code = "sink-failed"


class BrokenPayload(InternalError):
    """A bucket did not receive each packet of a payload exactly once."""

    code = "broken-payload"


class CorruptResults(InternalError):
    """Result files differ from their batch's manifest."""

    code = "corrupt-results"


class MoveFailed(InternalError):
    """A move wrote data that differs from what it read; the source is unchanged."""

    code = "move-failed"


class InvalidKey(InvalidInput):
    """The name, the scopes or the rate limit requested for an API key are invalid."""

    code = "invalid-key"


class KafkaUnsupported(InvalidInput):
    """A stream or sink uses Kafka, but the client library is not installed."""

    code = "kafka-unsupported"


class TokensUnsupported(InvalidInput):
    """A token issuer is configured, but the library that verifies tokens is not installed."""

    code = "tokens-unsupported"


class IssuerDown(Unavailable):
    """The public keys of a token issuer cannot be read."""

    code = "issuer-down"
