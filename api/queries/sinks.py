"""Sinks of queries as they are written in requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from api.timestamps import timestamp, timestamp_or_none
from catalog.values.sink import FilesSink, Sink, SinkFormat, SinkRecord, WebhookSink

FILES_EXAMPLE: JsonDict = {"type": "files", "path": "alerts", "format": "ndjson"}
WEBHOOK_EXAMPLE: JsonDict = {"type": "webhook", "url": "https://example.org/hooks/alerts"}


class FilesSinkDocument(BaseModel):
    """One file for each batch that gives the query results, exactly once: `batch-000000042-q17.ndjson`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [FILES_EXAMPLE]})

    type: Literal["files"]
    path: str = Field(
        min_length=1,
        description="Directory, relative to the service's directory of exports (`SLUICE_EXPORT_DIR`): names "
        "of letters, digits, `_`, `.`, `=` and `-`, with `/` between them. No other query that runs or is "
        "paused may have it.",
    )
    format: SinkFormat = "parquet"


class WebhookSinkDocument(BaseModel):
    """Requests with the results of one batch each as NDJSON, in order, at least once.

    The header `Sluice-Batch` has the number of the batch, `Sluice-Cursor` the cursor after the last row, and
    `Idempotency-Key` is the same whenever the same rows are sent again. Any 2xx takes them.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [WEBHOOK_EXAMPLE]})

    type: Literal["webhook"]
    url: str = Field(min_length=1, description="Where they are posted: http or https.")


SinkDocument = Annotated[FilesSinkDocument | WebhookSinkDocument, Field(discriminator="type")]


def to_sink(document: FilesSinkDocument | WebhookSinkDocument | None) -> Sink | None:
    """Return the sink that a request has; whether it can be meant is found out later."""
    match document:
        case FilesSinkDocument():
            return FilesSink(document.path, document.format)
        case WebhookSinkDocument():
            return WebhookSink(document.url)
        case None:
            return None


def sink_document(sink: Sink | None) -> FilesSinkDocument | WebhookSinkDocument | None:
    """Return a sink as it is answered."""
    match sink:
        case FilesSink():
            return FilesSinkDocument(type="files", path=sink.path, format=sink.format)
        case WebhookSink():
            return WebhookSinkDocument(type="webhook", url=sink.url)
        case None:
            return None


class SinkProgress(BaseModel):
    """Progress of a sink."""

    sink: SinkDocument
    state: Literal["pending", "current", "behind", "failing", "ended"] = Field(
        description="`pending` until the plan version that it came with is in force, `current` where it has "
        "everything, `behind` where batches wait, `failing` where the last attempt failed, `ended` where it "
        "has everything and gets no more."
    )
    observed_at: str = Field(description="When it was set, got something or failed last.")
    from_batch: int | None = Field(
        description="First batch whose results it gets; null while that is not known (`pending`)."
    )
    until_batch: int | None = Field(description="First batch that a later sink gets in its place, or null.")
    last_batch: int | None = Field(description="Last batch that it has, of those with results.")
    lag_batches: int = Field(description="Batches with results that wait to be delivered.")
    lost_batches: int = Field(
        description="Batches with results that were given up, since the sink failed for a day after its end."
    )
    batches: int = Field(description="Batches delivered.")
    rows: int = Field(description="Results delivered.")
    delivered_at: str | None = Field(description="When something was delivered last.")
    failures: int = Field(description="Attempts that failed.")
    error: str | None = Field(description="What the last of them failed with.")
    error_at: str | None

    @classmethod
    def of(cls, record: SinkRecord, *, over: bool) -> Self:
        """Return how far a sink is.

        Args:
            record: The sink; not none.
            over: Whether its query was removed, and no batch gives it results any more.
        """
        document = sink_document(record.sink)
        assert document is not None, "a series without a sink has no progress"
        last = max(record.created_at_us, record.delivered_at_us or 0, record.error_at_us or 0)
        return cls(
            sink=document,
            state=_state(record, over or record.until_batch is not None),
            observed_at=timestamp(last),
            from_batch=record.from_batch,
            until_batch=record.until_batch,
            last_batch=record.last_batch,
            lag_batches=record.pending,
            lost_batches=record.lost,
            batches=record.batches,
            rows=record.rows,
            delivered_at=timestamp_or_none(record.delivered_at_us),
            failures=record.failures,
            error=record.error,
            error_at=timestamp_or_none(record.error_at_us),
        )


def present_sink(records: Sequence[SinkRecord]) -> SinkRecord | None:
    """Return the sink that is wanted, given those of a series; None if none is."""
    return records[-1] if records and records[-1].sink is not None else None


def former_sinks(records: Sequence[SinkRecord]) -> list[SinkRecord]:
    """Return the sinks of a series that another, or none, has followed or will follow, and that get more."""
    return [
        record
        for record in records[:-1]
        if record.sink is not None and (record.until_batch is None or record.pending)
    ]


def _state(record: SinkRecord, over: bool) -> Literal["pending", "current", "behind", "failing", "ended"]:
    if record.from_batch is None:
        return "pending"
    if not record.pending:
        return "ended" if over else "current"
    return "failing" if record.failing else "behind"
