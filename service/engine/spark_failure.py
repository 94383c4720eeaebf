"""Failures of Spark: the messages of its errors, and the part of a message that is useful to a person."""

from __future__ import annotations

import re

from service.engine.retry import can_pass
from service.errors import disk_failed

#: Texts that errors of Spark and of workers contain if the stored state cannot be read.
_STATE = re.compile(
    r"CorruptSegment|\[(CANNOT_LOAD_STATE_STORE|STATE_STORE_\w+|STATE_SCHEMA\w*)"
    r"|/checkpoint/(state|metadata|segments)\b"
)

#: The whole message of Py4J for a call that got no answer, for example after a connection reset. The message
#: of an error in the JVM also has a stack trace.
_NO_ANSWER = re.compile(r"An error occurred while calling \S+")

#: Beginning of each line of a JVM stack trace that names a cause.
_CAUSED_BY = "Caused by: "


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the types of errors that calls of Spark raise."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException, OSError


def trace_of(error: Exception) -> str:
    """Return the message of an error of Spark and the messages of the error's causes, a line each."""
    from pyspark.errors.exceptions.captured import CapturedException

    return with_causes(str(error), error._stackTrace if isinstance(error, CapturedException) else "")


def with_causes(told: str, stack: str) -> str:
    """Add the causes in a JVM stack trace to a message; a full disk, for example, appears only there."""
    causes = [line.removeprefix(_CAUSED_BY) for line in stack.splitlines() if line.startswith(_CAUSED_BY)]
    return "\n".join([told, *causes])


def is_of_state(trace: str) -> bool:
    """Return whether a job failed because its stored state is damaged, so that retries are useless.

    >>> is_of_state("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred"), is_of_state("no number")
    (True, False)
    """
    return not can_pass(trace) and _STATE.search(trace) is not None


def reason_of(error: Exception, trace: str) -> str:
    """Return the reason for an error of Spark, for people: its innermost cause in Sluice, or one line."""
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
