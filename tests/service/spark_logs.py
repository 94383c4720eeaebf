"""A checkpoint as Spark leaves it: logs with the entries that a test wants."""

from __future__ import annotations

import json
from pathlib import Path

from service.checkpoint.spark_log import Offset, SparkLog

_METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1795479489162,"conf":{},"sourceMetadataInfo":{}}'


def write_begun(log: SparkLog, batch: int, end: Offset) -> None:
    """Write an entry of the offset log."""
    log.offsets.mkdir(parents=True, exist_ok=True)
    (log.offsets / str(batch)).write_text(f"v2\n{_METADATA}\nsluice:{json.dumps(end)}")


def write_done(log: SparkLog, batch: int) -> None:
    """Write an entry of the commit log."""
    log.commits.mkdir(parents=True, exist_ok=True)
    (log.commits / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def write_state(checkpoint: Path, version: int) -> None:
    """Write files of Spark's state up to a version, of one partition."""
    operator, schema = checkpoint / "state" / "0", "state/0/_stateSchema/default/0_5c"
    note = {"stateStoreInfo": [{"stateSchemaFilePaths": [f"file:{checkpoint}/{schema}"]}]}
    for path, text in (
        (checkpoint / "metadata", '{"id":"127932ec"}'),
        (checkpoint / schema, "v3"),
        (operator / "_metadata" / "v2" / "0", f"v2\n{json.dumps(note)}"),
        (operator / "0" / f"{version}.zip", "snapshot"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def log_of(directory: Path, batches: int = 1) -> SparkLog:
    """Return the logs of a checkpoint whose batches were begun, each at the end of its number of rows."""
    log = SparkLog(directory / "checkpoint")
    for batch in range(batches):
        write_begun(log, batch, {"1": batch + 1, "batch": batch + 1, "control": 1})
    return log


def none_voided(batch: int, start: Offset, end: Offset) -> tuple[Path, ...]:
    """Stand for ``VoidedInput`` where no batch is voided."""
    del batch, start, end
    return ()
