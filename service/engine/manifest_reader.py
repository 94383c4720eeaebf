"""Reader of the buckets' state in a checkpoint of Spark; each read starts a Spark of its own."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from service.config.settings import SparkSettings
from service.engine.spark_failure import reason_of, spark_errors, trace_of
from service.errors import CheckpointDamaged
from service.job.job import start_session
from service.jvm.jvm import launched
from service.recovery.moving.moved_state import ReadManifests


def manifest_reader(settings: SparkSettings, spark_log: Path) -> ReadManifests:
    """Return a function that reads the manifests of a checkpoint's buckets.

    Args:
        settings: Settings of Spark.
        spark_log: File for Spark's log.
    """

    def read(checkpoint: Path, number: int) -> dict[int, bytes]:
        # Spark's master is always local here, because only the driver reads.
        spark = settings.model_copy(update={"master": "local[1]"})
        with launched(spark, spark_log) as jvm:
            session = start_session(jvm)
            try:
                return _stored(session, checkpoint, number)
            except spark_errors() as error:
                raise CheckpointDamaged(
                    f'Spark\'s state in "{checkpoint}" cannot be read',
                    detail=reason_of(error, trace_of(error)),
                ) from error
            finally:
                session.stop()

    return read


def _stored(session: SparkSession, checkpoint: Path, number: int) -> dict[int, bytes]:
    """Return the manifest of each bucket after Spark's batch ``number``, by Spark's key of the bucket."""
    states = (
        session.read.format("statestore")
        .option("batchId", number)
        .option("stateVarName", "manifest")
        .load(str(checkpoint))
    )
    return {int(row["key"]["bucket"]): bytes(row["value"]["value"]) for row in states.collect()}
