"""End of a streaming query: stopped by us, done with everything, failed with a cause, or just gone.

Spark raises the cause of a query that failed, but not of every one that is dead. An error that the JVM calls
fatal, a stack overflow for one, can strike again while Spark writes the first one down: then the query counts
as ended without an exception, like one that was stopped. Worse, an error in what Spark does last leaves a
query that counts as active and whose thread is dead (``StreamExecution.runStream``, Spark 4.3). So a wait
also checks that the thread is alive: silence is not success.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pyspark.sql.streaming.query import StreamingQuery

#: How long a query may be dead before it is noticed; a look costs two calls into the JVM, about 1 ms.
LOOK_S = 1

#: What Spark says of a query that ran to its end, and sets in one place alone, behind the last batch.
_RAN_TO_ITS_END = "Stopped"


class QueryDied(Exception):
    """A streaming query ended without a stop, and Spark gives no cause."""


class RunningQuery(Protocol):
    """Interface of a streaming query that the engine uses."""

    def wait(self, seconds: int) -> bool:
        """Wait for its end. Return whether it ended, or raise its error."""

    def thread_lives(self) -> bool:
        """Return whether the thread that runs its batches does."""

    def last_words(self) -> str:
        """Return what Spark says the query does, or did last."""


class SparkQuery:
    """A query of Spark.

    Args:
        query: The query.
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
    """Wait until a query has ended as it should.

    Args:
        query: The query.
        bounded: Whether it ends by itself once everything available is processed.
        stopping: Whether it was stopped by us.

    Raises:
        QueryDied: It has ended in no such way.
    """
    while not query.wait(LOOK_S):
        if not query.thread_lives():
            # Whether it ended between the two questions.
            if query.wait(LOOK_S):
                break
            raise QueryDied(_died(query, "its thread is dead, although it counts as active"))
    if stopping() or (bounded and query.last_words() == _RAN_TO_ITS_END):
        return
    raise QueryDied(_died(query, "it ended, although nobody stopped it"))


def _died(query: RunningQuery, how: str) -> str:
    return f'the streaming query has died: {how}; Spark said last "{query.last_words()}", see spark.log'
