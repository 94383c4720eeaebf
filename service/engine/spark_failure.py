"""Failures of Spark: messages of its errors, and the part of them that is useful to a person."""

from __future__ import annotations

import re

from service.engine.retry import can_pass
from service.errors import disk_failed

#: Text in errors of Spark and of workers if the stored state cannot be read.
_STATE = re.compile(
    r"CorruptSegment|\[(CANNOT_LOAD_STATE_STORE|STATE_STORE_\w+|STATE_SCHEMA\w*)"
    r"|/checkpoint/(state|metadata|segments)\b"
)

#: Py4J's message for a call that got no answer, such as after a connection reset. An error of the JVM
#: comes with a trace.
_NO_ANSWER = re.compile(r"An error occurred while calling \S+")

#: Prefix of the line of a cause in a stack trace of the JVM.
_CAUSED_BY = "Caused by: "


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the types of errors that calls of Spark raise."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException, OSError


def trace_of(error: Exception) -> str:
    """Return the message of an error of Spark, and those of its causes."""
    from pyspark.errors.exceptions.captured import CapturedException

    return with_causes(str(error), error._stackTrace if isinstance(error, CapturedException) else "")


def with_causes(told: str, stack: str) -> str:
    """Add the causes from a JVM stack trace; some errors, such as a full disk, appear only there."""
    causes = [line.removeprefix(_CAUSED_BY) for line in stack.splitlines() if line.startswith(_CAUSED_BY)]
    return "\n".join([told, *causes])


def is_of_state(trace: str) -> bool:
    """Return whether a job failed because its stored state is damaged, so that retries are useless.

    >>> is_of_state("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred"), is_of_state("no number")
    (True, False)
    """
    return not can_pass(trace) and _STATE.search(trace) is not None


def reason_of(error: Exception, trace: str) -> str:
    """Return the useful part of an error of Spark: the innermost cause, or the first line."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    if isinstance(error, OSError) and disk_failed(error) is not None:
        return f"{error.strerror}: {error.filename}." if error.filename else f"{error.strerror}."
    unanswered = isinstance(error, Py4JError) and _NO_ANSWER.fullmatch(str(error)) is not None
    if unanswered or isinstance(error, Py4JNetworkError | OSError):
        return "The JVM has gone."
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("catalog.", "service.", "operators.", "planner."))]
    # "service.errors.CorruptInput: file ..." - people need only the text after the class.
    if causes:
        return causes[-1].partition(": ")[2]
    passing = next((line for line in lines if can_pass(line)), None)
    return passing or (lines[0] if lines else type(error).__name__)
