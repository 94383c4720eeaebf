"""Ends Spark in this process, even if its JVM has died."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from service.engine.spark_failure import spark_errors
from service.jvm.jvm import Jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def end_spark(session: SparkSession | None, jvm: Jvm | None) -> None:
    """End Spark and its JVM, which may have died already, and drop PySpark's references to them.

    Args:
        session: The session, or None if there is none.
        jvm: The JVM, or None if no JVM was launched.
    """
    if sys.modules.get("pyspark") is None:  # not loaded yet, or not loadable
        if jvm is not None:
            jvm.end()
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if session is not None:
        with contextlib.suppress(*spark_errors()):
            session.stop()
        # If the JVM has died, the call above fails before it ends the thread that receives accumulators. This
        # call ends the thread, which otherwise keeps modules alive at exit, so that DuckDB reports leaks.
        with contextlib.suppress(*spark_errors()):
            session.sparkContext.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        with contextlib.suppress(*spark_errors()):
            gateway.shutdown()
    if jvm is not None:
        jvm.end()
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
