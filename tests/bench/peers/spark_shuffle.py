"""The limit of Spark itself: the same rows read and shuffled by key into a sink that keeps nothing.

As a streaming query with the batches of the joins, or as one batch; no join, no state.

Run as a process of its own: ``python -m tests.bench.peers.spark_shuffle JOB.json``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

from tests.bench.peers.job import Job, Ran, answer, read_job
from tests.bench.peers.spark_session import (
    SCHEMA,
    finish,
    observed,
    read_stream,
    spark_session,
    start,
    versions,
)
from tests.bench.peers.workloads import STREAMS


def run(job: Job) -> Ran:
    """Read and shuffle every row."""
    with spark_session(job) as spark:
        began_s = time.time()
        if not job.options["streaming"]:
            a, b = (spark.read.schema(SCHEMA).parquet(str(Path(job.directory) / name)) for name in STREAMS)
            shuffled = a.unionByName(b).repartition(job.cores, "k")
            shuffled.write.format("noop").mode("overwrite").save()
            return Ran({}, 2 * job.streams.rows, time.time() - began_s, versions=versions(spark))
        a, b = (read_stream(spark, job, name, job.options["files_per_batch"]) for name in STREAMS)
        shuffled = a.unionByName(b).repartition(job.cores, "k")
        query = start(observed(shuffled, {"rows": F.lit(True)}), job, "shuffle")
        ended_s, batches, counts = finish([query])
        if (rows := counts[0]["rows"]) != sum(b.rows for b in batches[0]):
            raise RuntimeError(f"{rows} rows came through the shuffle")
        return Ran({}, rows, ended_s - began_s, batches, paced=True, versions=versions(spark))


if __name__ == "__main__":
    answer(run(read_job(sys.argv[1])))
