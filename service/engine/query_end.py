"""End of a streaming query: it was stopped by the engine, finished, failed, or died without a known cause.

Spark raises the cause of a failed query, but not of every dead query. An error that is fatal to the JVM, such
as a stack overflow, can occur again while Spark records the first error. The query then counts as ended
without an exception, like a stopped query. An error in Spark's last steps can even leave a query that counts
as active although its thread is dead (``StreamExecution.runStream``, Spark 4.3). Waiting for a query
therefore also checks that its thread is alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pyspark.sql.streaming.query import StreamingQuery

#: Seconds between two checks that a query is not dead. A check takes two calls into the JVM, about 1 ms.
LOOK_S = 1

#: Status message of a query that ran to its end. Spark sets this message in one place only, after the last
#: batch.
_RAN_TO_ITS_END = "Stopped"


class QueryDied(Exception):
    """A streaming query ended, although the engine did not stop it, and Spark gives no cause."""


class RunningQuery(Protocol):
    """The methods of a streaming query that the engine calls."""

    def wait(self, seconds: int) -> bool:
        """Wait for the query's end. Return whether the query ended, or raise its error."""

    def thread_lives(self) -> bool:
        """Return whether the thread that runs the query's batches is alive."""

    def last_words(self) -> str:
        """Return Spark's last status message, which says what the query does or did last."""


class SparkQuery:
    """A streaming query of PySpark as a `RunningQuery`.

    Args:
        query: PySpark's query.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query

    def wait(self, seconds: int) -> bool:
        """See ``RunningQuery``."""
        return bool(self._query.awaitTermination(seconds))

    def thread_lives(self) -> bool:
        """See ``RunningQuery``."""
        return bool(self._query._jsq.streamingQuery().queryExecutionThread().isAlive())

    def last_words(self) -> str:
        """See ``RunningQuery``."""
        return str(self._query.status["message"])


def wait_for_end(query: RunningQuery, *, bounded: bool, stopping: Callable[[], bool]) -> None:
    """Wait until a query has ended as expected.

    Args:
        query: The query.
        bounded: Whether the query ends without a stop once all available input is processed.
        stopping: Returns whether the engine has stopped the query.

    Raises:
        QueryDied: The query ended in another way, and Spark gives no cause.
    """
    while not query.wait(LOOK_S):
        if not query.thread_lives():
            # The query may have ended normally between the two calls.
            if query.wait(LOOK_S):
                break
            raise QueryDied(_died(query, "its thread is dead, although it counts as active"))
    if stopping() or (bounded and query.last_words() == _RAN_TO_ITS_END):
        return
    raise QueryDied(_died(query, "it ended, although the engine did not stop it"))


def _died(query: RunningQuery, how: str) -> str:
    return f'the streaming query has died: {how}; Spark said last "{query.last_words()}", see spark.log'
