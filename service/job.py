"""The one Spark job: SOURCE with PACK, a shuffle by bucket, CHAIN, and the commit of ROUTE.

spark.readStream.format("sluice")          bucket, payload
  .groupBy("bucket")
  .transformWithStateInPandas(...)          result files on the side; one report per bucket
  .writeStream.foreachBatch(...)            one manifest
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from service.chain_processor import OUTPUT_SCHEMA, ChainOptions, ChainProcessor
from service.java import use_java
from service.settings import Settings
from service.source import FORMAT_NAME, SluiceSource

SOURCE_NAME = "sluice"

#: Segments can be megabytes, and Spark pages state replies by entries, not bytes.
STATE_RECORDS_PER_REPLY = 16

SPARK_CONFIGURATION = {
    "spark.app.name": "sluice",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.execution.arrow.transformWithStateInPySpark.maxStateRecordsPerBatch": str(
        STATE_RECORDS_PER_REPLY
    ),
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # How often an idle job asks for input: every 10 ms by Spark's default, for nothing most of the time.
    "spark.sql.streaming.pollingDelay": "50ms",
    # Only the last batch can replay; 100 versions of the state, Spark's default, are gigabytes of disk.
    "spark.sql.streaming.minBatchesToRetain": "10",
    # Lets Spark's own connectors join later as a second, named source; only a fresh checkpoint can turn
    # it on.
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "service.worker_daemon",
    # Offsets, commits and state changes of a batch are four files, which Spark renames into place. By default
    # it does so through Hadoop's FileContext, which starts 32 "readlink" processes for it here: 0.1 s
    # a batch. The engine's lock keeps every other writer away, and a data directory is local.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # The JVM moves bytes and plans small batches. Compiling that better than quickly never paid: many-keys
    # took a third less CPU time in the JVM without, and the first batch comes 1.5 s earlier.
    # Once, under load, a stack of the default size overflowed in a regular expression of Spark's.
    "spark.driver.extraJavaOptions": "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -Xss4m",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    # Payloads are packed columns: compressing them once more costs more than it saves on one machine.
    "spark.shuffle.compress": "false",
}


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What one run of the job needs beside the settings.

    Attributes:
        checkpoint: Directory of Spark's checkpoint.
        source: Options of ``service.source``.
        chain: Options of ``service.chain_processor``.
        partitions: Shuffle partitions, fixed by the checkpoint's first batch.
        bounded: Whether the job ends once everything available is processed.
    """

    checkpoint: str
    source: dict[str, str]
    chain: ChainOptions
    partitions: int
    bounded: bool


def start_session(settings: Settings, partitions: int, log_file: Path) -> SparkSession:
    """Start a JVM and Spark in it.

    Args:
        settings: Master, cores and memory.
        partitions: Shuffle partitions.
        log_file: Where the JVM and its workers write what they have to say.

    Raises:
        JavaMissing: No Java 17 or newer is found.
    """
    use_java()
    # Workers must be this interpreter, or they miss the packages of its environment.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = SparkConf().setMaster(settings.master)
    conf.setAll(list(SPARK_CONFIGURATION.items()))
    conf.set("spark.driver.memory", settings.driver_memory)
    conf.set("spark.ui.enabled", str(settings.spark_ui).lower())
    conf.set("spark.sql.shuffle.partitions", str(partitions))
    conf.setAll(list(settings.spark_conf.items()))
    with log_file.open("ab") as log:
        gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
    session = SparkSession(SparkContext(conf=conf, gateway=gateway))
    session.sparkContext.setLogLevel("WARN")
    return session


def jvm_pid(session: SparkSession) -> int:
    """Return the process id of the session's JVM."""
    return int(session._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]  # py4j


def start_job(
    session: SparkSession, options: JobOptions, commit: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start the streaming query.

    Args:
        session: Running session.
        options: See ``JobOptions``.
        commit: Called with every batch's output and Spark's batch id.
    """
    session.dataSource.register(SluiceSource)
    reader = session.readStream.format(FORMAT_NAME).name(SOURCE_NAME)
    for name, value in options.source.items():
        reader = reader.option(name, value)
    chained = (
        reader.load()
        .groupBy("bucket")
        .transformWithStateInPandas(
            statefulProcessor=ChainProcessor(options.chain),
            outputStructType=OUTPUT_SCHEMA,
            outputMode="Append",
            timeMode="None",
        )
    )
    writer: Any = chained.writeStream.foreachBatch(commit).option("checkpointLocation", options.checkpoint)
    writer = (
        writer.trigger(availableNow=True) if options.bounded else writer.trigger(processingTime="0 seconds")
    )
    query: StreamingQuery = writer.start()
    return query
