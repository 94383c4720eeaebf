"""The one Spark job: SOURCE with PACK, a shuffle by bucket, CHAIN, and the commit of ROUTE.

spark.readStream.format("sluice")          columns: bucket, packet of a payload
  .groupBy("bucket")
  .transformWithStateInPandas(...)          side effects: result files, and one report per bucket
  .writeStream.format("noop")               the last report commits one manifest (``commit.reporting``)
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from service.commit.reporting.reports import ReportAddress
from service.job.chain_processor import OUTPUT_SCHEMA, ChainOperator, ChainOptions
from service.job.source import FORMAT_NAME, SluiceSource
from service.jvm.jvm import Jvm

log = logging.getLogger(__name__)

SOURCE_NAME = "sluice"


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of one run of the job.

    Attributes:
        checkpoint: Directory of Spark's checkpoint.
        source: Options of the data source (``service.job.source``).
        chain: Options of the stateful operator (``service.job.chain_processor``).
        reports: Address at which the engine accepts the buckets' reports.
        partitions: Number of shuffle partitions, fixed by the checkpoint's first start.
        bounded: Whether the job ends once all available input is processed.
    """

    checkpoint: str
    source: dict[str, str]
    chain: ChainOptions
    reports: ReportAddress
    partitions: int
    bounded: bool


def start_session(jvm: Jvm) -> SparkSession:
    """Start a Spark session in a running JVM.

    Raises:
        ConnectionError: The JVM has ended.
    """
    conf = SparkConf()
    conf.setAll(list(jvm.configuration.items()))
    session = SparkSession(SparkContext(conf=conf, gateway=connect(jvm)))
    session.sparkContext.setLogLevel("WARN")
    _tell_no_end_of_jvm(session.sparkContext)
    _write_no_checksum_files(session)
    return session


def _tell_no_end_of_jvm(context: SparkContext) -> None:
    """Suppress PySpark's traceback about the end of the JVM, which the engine reports in one line.

    Sluice uses no accumulators, but PySpark's server for accumulators prints a traceback when its connection
    ends.
    """
    server: Any = context._accumulatorServer
    server.handle_error = _log_lost_connection


def _log_lost_connection(_request: object, address: object) -> None:
    log.debug("connection of PySpark's accumulators ended: %s", sys.exception(), extra={"address": address})


def _write_no_checksum_files(session: SparkSession) -> None:
    """Let the driver's JVM write its files without checksum files.

    Hadoop starts a process (chmod) for every file that it creates. For the logs and the state of a batch,
    these are eight processes with checksum files, which take 25 of the batch's 205 ms, and four without.
    """
    jvm: Any = session._jvm
    hadoop = session._jsc.hadoopConfiguration()
    jvm.org.apache.hadoop.fs.FileSystem.getLocal(hadoop).setWriteChecksum(False)


def connect(jvm: Jvm) -> Any:
    """Return the py4j gateway to a running JVM.

    Raises:
        ConnectionError: The JVM has ended.
    """
    # PySpark reads the address of a running JVM only from environment variables.
    address = jvm.address()
    os.environ |= address
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in address:
            os.environ.pop(name)
    return gateway


def jvm_pid(session: SparkSession) -> int:
    """Return the process id of the session's JVM."""
    return int(session._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]  # py4j


def start_job(session: SparkSession, options: JobOptions) -> StreamingQuery:
    """Start the streaming query.

    Args:
        session: Running session.
        options: Options of the run.
    """
    session.conf.set("spark.sql.shuffle.partitions", options.partitions)
    session.dataSource.register(SluiceSource)
    reader = session.readStream.format(FORMAT_NAME).name(SOURCE_NAME)
    for name, value in options.source.items():
        reader = reader.option(name, value)
    chained = (
        reader.load()
        .groupBy("bucket")
        .transformWithStateInPandas(
            statefulProcessor=ChainOperator(options.chain, options.reports),
            outputStructType=OUTPUT_SCHEMA,
            outputMode="Append",
            timeMode="None",
        )
    )
    writer = chained.writeStream.format("noop").option("checkpointLocation", options.checkpoint)
    writer = (
        writer.trigger(availableNow=True) if options.bounded else writer.trigger(processingTime="0 seconds")
    )
    query: StreamingQuery = writer.start()
    return query
