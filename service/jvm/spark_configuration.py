"""Spark's configuration, beside its defaults; ``SLUICE_SPARK_CONF`` overrules it."""

from __future__ import annotations

from service.config.settings import SparkSettings

_JVM_OPTIONS = "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseG1GC -Xss4m"

SPARK_CONFIGURATION = {
    "spark.app.name": "sluice",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Hadoop gives each file permissions of its own, whatever the umask of the process is.
    "spark.hadoop.fs.permissions.umask-mode": "077",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Between two questions for input; the answer waits for some (``service.job.source``).
    "spark.sql.streaming.pollingDelay": "10ms",
    # Only the last batch can replay, and segments of older versions have gone; Spark's default is 100.
    "spark.sql.streaming.minBatchesToRetain": "10",
    # Lets Spark's own connectors join later as a second, named source; only a fresh checkpoint can turn
    # it on.
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    # Over TCP each task waits 40 ms for an acknowledgement (Nagle's algorithm).
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "service.job.workers.worker_daemon",
    # Readers and chains differ in this alone by default, and therefore have a daemon and workers each: 2.5 s
    # of CPU time more at the start.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # Offsets, commits and state changes of a batch are four files, which Spark renames into place. By default
    # it does so through Hadoop's FileContext, which starts 32 "readlink" processes for it here: 0.1 s
    # a batch. The engine's lock keeps every other writer away, and a data directory is local.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # The JVM moves bytes and plans small batches. Compiling that better than quickly never paid: many-keys
    # took a third less CPU time in the JVM without, and the first batch comes 1.5 s earlier.
    # The parallel collector takes 2 to 4 ms of CPU time less per batch of 2,000 rows, and stops everything
    # for 0.3 s once or twice a minute; G1 stopped it for 24 ms at most.
    # Once, under load, a stack of the default size overflowed in a regular expression of Spark's.
    "spark.driver.extraJavaOptions": _JVM_OPTIONS,
    # The same for the executors of a cluster; without one there are none.
    "spark.executor.extraJavaOptions": _JVM_OPTIONS,
    # A bucket's batch is a few rows for Spark, not worth code of their own. Without code for whole stages
    # the thread that plans a batch took 5 to 8 of 70 ms less: fewer nodes, so our operator is copied less
    # often, which analyses its encoders each time.
    "spark.sql.codegen.wholeStage": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    # What the JVM gathers for a chain before it sends it on; by default 64 MB, in memory that is new to it
    # each time (``service.job.packets``).
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    # Payloads are packed columns: compressing them once more costs more than it saves on one machine.
    "spark.shuffle.compress": "false",
    # Where an executor is lost, Spark runs its tasks again and compares checksums of their output. Since 4.1
    # it fails the whole batch where they differ. Ours do, because a payload tells the CPU time that it took.
    # The rows are the same.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
}


def spark_configuration(spark: SparkSettings) -> dict[str, str]:
    """Return the configuration that settings come to."""
    return {
        **SPARK_CONFIGURATION,
        "spark.master": spark.master,
        "spark.driver.memory": spark.driver_memory,
        "spark.ui.enabled": str(spark.ui).lower(),
        # On one machine Spark makes the secret itself. A cluster has its own, or none, which the operator
        # knows.
        **({"spark.authenticate": "true"} if spark.one_machine else {}),
        **spark.conf,
    }
