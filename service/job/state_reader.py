"""The state that Spark has stored for the buckets, read while no job runs."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession


def read_manifests(session: SparkSession, checkpoint: Path, number: int) -> dict[int, bytes]:
    """Return the manifest of each bucket after a batch, by Spark's key of the bucket.

    Args:
        session: Running session.
        checkpoint: Spark's checkpoint; nothing is written to it.
        number: Spark's number of the batch, which it has done.
    """
    states = (
        session.read.format("statestore")
        .option("batchId", number)
        .option("stateVarName", "manifest")
        .load(str(checkpoint))
    )
    return {int(row["key"]["bucket"]): bytes(row["value"]["value"]) for row in states.collect()}
