"""Spark's configuration in addition to its defaults; ``SLUICE_SPARK_CONF`` overrides it."""

from __future__ import annotations

from service.config.settings import SparkSettings

_JVM_OPTIONS = "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseG1GC -Xss4m"

SPARK_CONFIGURATION = {
    "spark.app.name": "sluice",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Hadoop sets the permissions of each file itself and ignores the umask of the process.
    "spark.hadoop.fs.permissions.umask-mode": "077",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Time between two requests for input; the source's answer waits for input (``service.job.source``).
    "spark.sql.streaming.pollingDelay": "10ms",
    # Only the last batch can replay, and segments of older versions are deleted; Spark's default is 100.
    "spark.sql.streaming.minBatchesToRetain": "10",
    # Allows Spark's own connectors to be added later as a second, named source; only a fresh checkpoint can
    # turn it on.
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    # Over TCP each task waits 40 ms for an acknowledgement (Nagle's algorithm).
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "service.job.workers.worker_daemon",
    # By default, readers and chains differ only in this setting, so they would have separate daemons and
    # workers, which costs 2.5 s more CPU time at the start.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # Offsets, commits and state changes of a batch are four files, which Spark renames into place. By
    # default, Spark does so through Hadoop's FileContext, which starts 32 "readlink" processes here and takes
    # 0.1 s per batch. The engine's lock keeps every other writer away, and a data directory is local.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # The JVM moves bytes and plans small batches. Optimizing compilation (C2) costs more than it saves:
    # without it, the many-keys benchmark took a third less CPU time in the JVM, and the first batch ended
    # 1.5 s earlier. The parallel collector takes 2 to 4 ms less CPU time per batch of 2,000 rows than G1, but
    # stops the JVM for 0.3 s once or twice a minute. G1 stopped it for 24 ms at most. A stack of the default
    # size once overflowed under load in a regular expression of Spark.
    "spark.driver.extraJavaOptions": _JVM_OPTIONS,
    # The same options for the executors of a cluster; without a cluster there are no executors.
    "spark.executor.extraJavaOptions": _JVM_OPTIONS,
    # A bucket's batch is a few rows for Spark, too few for generated code. Without whole-stage code, the
    # thread that plans a batch saved 5 to 8 of 70 ms: the plan has fewer nodes, so our operator is copied
    # less often, and each copy analyses its encoders.
    "spark.sql.codegen.wholeStage": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    # Bytes that the JVM gathers for a chain before it sends them; by default 64 MB, in newly allocated memory
    # each time (``service.job.packets``).
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    # Payloads are packed columns: compressing them again costs more than it saves on one machine.
    "spark.shuffle.compress": "false",
    # If an executor is lost, Spark runs its tasks again and compares checksums of their output. Since version
    # 4.1, Spark fails the whole batch if the checksums differ. Sluice's checksums differ, because a payload
    # contains its CPU time; the rows are the same.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
}


def spark_configuration(spark: SparkSettings) -> dict[str, str]:
    """Return Spark's configuration for some settings."""
    return {
        **SPARK_CONFIGURATION,
        "spark.master": spark.master,
        "spark.driver.memory": spark.driver_memory,
        "spark.ui.enabled": str(spark.ui).lower(),
        # On one machine, Spark makes the authentication secret itself. A cluster has its own secret or none,
        # which the operator configures.
        **({"spark.authenticate": "true"} if spark.one_machine else {}),
        **spark.conf,
    }
