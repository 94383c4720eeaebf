"""When a failed job is started again, and when a person has to look."""

from __future__ import annotations

import errno

import pytest
from py4j.protocol import ERROR, Py4JError, Py4JNetworkError, get_return_value

from service.engine.retry import (
    FORGET_AFTER_S,
    MAX_DELAY_S,
    MAX_FAILURES_AT_A_BATCH,
    RESTART_DELAY_S,
    Failure,
    Failures,
    can_pass,
)
from service.engine.spark_failure import reason_of, with_causes


def delays(*failures: Failure, ran_s: float = 1.0) -> list[float | None]:
    found = Failures()
    return [found.add(failure, ran_s=ran_s) for failure in failures]


def test_a_jvm_that_dies_while_idle_is_started_again_forever() -> None:
    died = Failure(7, reason_of(Py4JNetworkError("gone"), "gone"), can_pass("The JVM has gone."))
    found = delays(*[died] * 20)
    assert found[:4] == [RESTART_DELAY_S, 2 * RESTART_DELAY_S, 4 * RESTART_DELAY_S, 8 * RESTART_DELAY_S]
    assert found[-1] == MAX_DELAY_S


def test_a_jvm_that_dies_in_the_middle_of_an_answer_has_gone_too() -> None:
    with pytest.raises(Py4JError) as no_answer:
        get_return_value(ERROR, None, "o137", "streamingQuery")
    with pytest.raises(Py4JError) as with_trace:
        get_return_value(f"{ERROR}sno such method", None, "o137", "streamingQuery")

    assert can_pass(reason_of(no_answer.value, str(no_answer.value)))
    assert not can_pass(reason_of(with_trace.value, str(with_trace.value)))


def test_a_batch_that_fails_the_same_way_three_times_is_given_up() -> None:
    poison = [Failure(7, f"Conversion Error in task {number}", False) for number in range(3)]
    assert delays(*poison) == [RESTART_DELAY_S, 2 * RESTART_DELAY_S, None]
    assert len(poison) == MAX_FAILURES_AT_A_BATCH


def test_failures_of_other_kinds_or_batches_are_not_the_same_way() -> None:
    one, other, later = (Failure(b, r, False) for b, r in ((7, "a"), (7, "b"), (8, "a")))
    assert None not in delays(one, other, one, other, later, one)


def test_a_job_that_has_committed_a_batch_begins_anew() -> None:
    died = [Failure(batch, "The JVM has gone.", True) for batch in (None, 7, 7, 8, None, None)]
    assert delays(*died) == [RESTART_DELAY_S * times for times in (1, 1, 2, 1, 2, 4)]


def test_what_failed_long_ago_is_forgotten() -> None:
    poison = Failure(7, "Conversion Error", False)
    assert delays(*[poison] * 5, ran_s=FORGET_AFTER_S) == [RESTART_DELAY_S] * 5


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "/data/x"),
        OSError(errno.EROFS, "Read-only file system", "/data/x"),
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
    ],
)
def test_what_the_system_refuses_can_pass(error: OSError) -> None:
    reason = reason_of(error, str(error))
    assert can_pass(reason), reason
    if error.filename:
        assert error.filename in reason


def test_a_full_disk_in_a_trace_of_spark_can_pass() -> None:
    trace = "org.apache.spark.SparkException: Job aborted\nOSError: [Errno 28] No space left on device: 'x'"
    assert can_pass(reason_of(RuntimeError(), trace))


@pytest.mark.parametrize(
    "told",
    [
        "Task 1 in stage 5.0 failed 4 times, most recent failure: Lost task 1.3 in stage 5.0 (TID 12) "
        "(worker2 executor 3): ExecutorLostFailure (executor 3 exited unrelated to the running tasks)",
        "ResultStage 6 has failed the maximum allowable number of times: 4. Most recent failure reason: "
        "org.apache.spark.shuffle.FetchFailedException: The relative remote executor(Id: 1) is dead",
        "Master removed our application: FAILED",
        "Job 7 cancelled because SparkContext was shut down",
    ],
)
def test_executors_and_a_master_that_went_away_can_come_back(told: str) -> None:
    assert can_pass(reason_of(RuntimeError(), f"[STREAM_FAILED] Job aborted due to stage failure: {told}"))


def test_a_full_disk_that_only_a_cause_in_the_jvm_tells_of_can_pass() -> None:
    told = "[STREAM_FAILED] terminated: [CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Cannot perform commit."
    cause = "java.io.IOException: No space left on device"
    stack = f"SparkException: {told}\n\tat A.b(A.scala:1)\nCaused by: {cause}\n"
    reason = reason_of(RuntimeError(), with_causes(told, stack))
    assert reason == cause
    assert can_pass(reason)
