"""Spark settings that differ from Spark's defaults; ``SLUICE_SPARK_CONF`` overrides them."""

from __future__ import annotations

from service.config.settings import SparkSettings

_JVM_OPTIONS = "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseG1GC -Xss4m"

SPARK_CONFIGURATION = {
    "spark.app.name": "sluice",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Hadoop sets the permissions of each file itself, so the umask of the process is not enough.
    "spark.hadoop.fs.permissions.umask-mode": "077",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Pause between two requests for input. It is short, because the source itself waits for input before it
    # answers (``service.job.source``).
    "spark.sql.streaming.pollingDelay": "10ms",
    # Spark's default is 100. Fewer are enough, because only the last batches can be repeated and segments of
    # older states are deleted.
    "spark.sql.streaming.minBatchesToRetain": "10",
    # Allows that Spark's own connectors are later added as a second, named source. It is on now, because only
    # a new checkpoint can turn it on.
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    # Over TCP, each task would wait 40 ms for an acknowledgement (Nagle's algorithm).
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "service.job.workers.worker_daemon",
    # By default, this setting is the only difference between the environments of readers and chains. They
    # would then have separate daemons and workers, which costs 2.5 s more CPU time at the start.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # Offsets, commits and state changes of a batch are four files, which Spark renames into place. By
    # default, Spark does so through Hadoop's FileContext, which starts 32 "readlink" processes here and takes
    # 0.1 s per batch. The manager that is set here is safe, because the engine's lock excludes all other
    # writers and a data directory is local.
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
    # To Spark, a batch of a bucket is a few rows, so generated code does not pay. Without it, the thread that
    # plans a batch takes 5 to 8 ms less of 70 ms: the plan has fewer nodes, so Spark copies our operator less
    # often, and each copy analyses the operator's encoders.
    "spark.sql.codegen.wholeStage": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    # Bytes that the JVM gathers for a chain before it sends them. By default it gathers 64 MB, each time in
    # newly allocated memory (``service.job.packets``).
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    # Payloads are packed already, so compressing them costs more than it saves on one machine.
    "spark.shuffle.compress": "false",
    # If an executor is lost, Spark runs its tasks again and compares checksums of their output. Since version
    # 4.1, Spark fails the whole batch if the checksums differ. Sluice's checksums differ, because a payload
    # contains its CPU time; the rows are the same.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
}


def spark_configuration(spark: SparkSettings) -> dict[str, str]:
    """Return Spark's complete configuration for the given settings of Sluice."""
    return {
        **SPARK_CONFIGURATION,
        "spark.master": spark.master,
        "spark.driver.memory": spark.driver_memory,
        "spark.ui.enabled": str(spark.ui).lower(),
        # On one machine, Spark generates the secret for authentication. For a cluster, the operator
        # configures whether there is a secret.
        **({"spark.authenticate": "true"} if spark.one_machine else {}),
        **spark.conf,
    }
