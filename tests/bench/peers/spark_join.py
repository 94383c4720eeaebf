"""Spark's own stream-stream joins: one of the largest window, one for all queries by hand, or one for each.
Three streams are joined by two of them, one after the other.

Where no query is asked, the limit of Spark itself: the rows read and shuffled by key in the same batches.

By hand is what an engineer would write: one join of the largest window, then a filter per query. The counts
of the filters are observed on the way into a sink that keeps nothing, so that nothing is written, where
Sluice writes every result; that favours Spark.

Run as a process of its own: ``python -m tests.bench.peers.spark_join JOB.json``.
"""

from __future__ import annotations

import sys
import time
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

from tests.bench.peers.job import Job, Ran, answer, read_job
from tests.bench.peers.spark_session import finish, observed, read_stream, spark_session, start, versions
from tests.bench.peers.workloads import Query


def _side(spark: SparkSession, job: Job, name: str, below: float | None) -> DataFrame:
    rows = read_stream(spark, job, name)
    if below is not None:
        rows = rows.where(F.col("v") < below)
    return rows.select(
        F.col("ts").cast("timestamp").alias(f"{name}_ts"),
        F.col("k").alias(f"{name}_k"),
        F.col("v").alias(f"{name}_v"),
    ).withWatermark(f"{name}_ts", "0 seconds")


def _join(spark: SparkSession, job: Job, query: Query) -> DataFrame:
    """Return a chain of joins, in which each stream is near those before it."""
    below = {"A": query.a_below, "B": query.b_below}
    window = F.expr(f"INTERVAL {query.window_us} MICROSECONDS")
    first, *others = job.streams.names
    joined = _side(spark, job, first, below[first])
    for number, name in enumerate(others, 1):
        condition = F.col("A_k") == F.col(f"{name}_k")
        for before in job.streams.names[:number]:
            ts, of_name = F.col(f"{before}_ts"), F.col(f"{name}_ts")
            condition &= (ts > of_name - window) & (ts < of_name + window)
        how = "left_outer" if query.left else "inner"
        joined = joined.join(_side(spark, job, name, below.get(name)), condition, how)
        if name != others[-1]:
            # Spark takes one event time per side. A calculated column is none.
            again = F.timestamp_micros(F.unix_micros(f"{name}_ts"))
            joined = joined.withColumn(f"{name}_ts", again)
    return joined


def _each(spark: SparkSession, job: Job) -> list[DataFrame]:
    """Return a join per query."""
    return [
        observed(_join(spark, job, query).select("A_ts", "B_ts", "A_k"), {query.name: F.lit(True)})
        for query in job.queries
    ]


def _by_hand(spark: SparkSession, job: Job) -> DataFrame:
    """Return one join of the largest window with a filter per query."""
    largest = Query("largest", max(q.window_us for q in job.queries))
    times = [F.unix_micros(f"{name}_ts") for name in job.streams.names]
    distance = F.greatest(*times) - F.least(*times)
    joined = _join(spark, job, largest).withColumn("distance", distance)
    return observed(joined, {q.name: _condition(q) for q in job.queries})


def _condition(query: Query) -> Column:
    condition = F.col("distance") < query.window_us
    if query.a_below is not None:
        condition &= F.col("A_v") < query.a_below
    if query.b_below is not None:
        condition &= F.col("B_v") < query.b_below
    return condition


def _shuffled(spark: SparkSession, job: Job) -> DataFrame:
    """Return all rows, shuffled by key: no join, no state."""
    rows = reduce(DataFrame.unionByName, (read_stream(spark, job, name) for name in job.streams.names))
    return observed(rows.repartition(job.cores, "k"), {"rows": F.lit(True)})


def run(job: Job) -> Ran:
    """Run the job's queries to their end."""
    with spark_session(job) as spark:
        began_s = time.time()
        if not job.queries:
            frames = [_shuffled(spark, job)]
        else:
            frames = [_by_hand(spark, job)] if job.options["by_hand"] else _each(spark, job)
        running = [start(frame, job, f"join-{number}") for number, frame in enumerate(frames)]
        ended_s, batches, counts = finish(running)
        results = {name: count for of_one in counts for name, count in of_one.items()}
        rows = sum(b.rows for b in batches[0])
        if results.pop("rows", rows) != rows:
            raise RuntimeError(f"not all of {rows} rows came through the shuffle")
        return Ran(
            results=results,
            input_rows=rows,
            job_s=ended_s - began_s,
            batches=batches,
            paced=True,
            versions=versions(spark),
        )


if __name__ == "__main__":
    answer(run(read_job(sys.argv[1])))
