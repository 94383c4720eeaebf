"""Background work that fails with an unexpected error is logged, counted, reported and retried."""

from __future__ import annotations

import itertools
from typing import NoReturn

import pytest

from service.faults import Faults


def fails() -> NoReturn:
    raise KeyError("value")


def test_what_fails_is_left_alone_for_longer_and_longer_and_told_until_it_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = [0.0]
    faults = Faults(lambda: now_s[0])
    tries = []
    for _ in range(500):
        before = faults.counts()["listing"]
        assert faults.attempt("listing", fails, of="A") is None
        if faults.counts()["listing"] > before:
            tries.append(now_s[0])
        now_s[0] += 1
    assert tries == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363, 423, 483]
    assert [str(fault) for fault in faults.failing()] == ["listing of A: KeyError: 'value'"]
    assert len(caplog.records) == len(tries)
    assert faults.attempt("listing", lambda: 5, of="B") == 5  # another object does not wait
    now_s[0] += 60
    assert faults.attempt("listing", lambda: 7, of="A") == 7
    assert faults.failing() == ()
    assert faults.counts()["listing"] == len(tries)


def test_a_traceback_is_logged_once_for_each_cause(caplog: pytest.LogCaptureFixture) -> None:
    now_s = itertools.count(0, 100)
    faults = Faults(lambda: next(now_s))

    def lacks() -> NoReturn:
        raise ValueError("no unit\n  hint: Write one.")

    for work in (fails, fails, fails, lacks, lacks, fails, lambda: None, fails, fails):
        faults.attempt("pricing", work)
    failed = [record for record in caplog.records if record.levelname == "ERROR"]
    first, again = "background work failed: ", "background work still fails: "
    assert [(record.message, record.exc_info is not None) for record in failed] == [
        (f"{first}KeyError: 'value'", True),
        (f"{again}KeyError: 'value'", False),
        (f"{again}KeyError: 'value'", False),
        (f"{first}ValueError: no unit\n  hint: Write one.", True),
        (f"{again}ValueError: no unit", False),
        (f"{first}KeyError: 'value'", True),
        (f"{first}KeyError: 'value'", True),
        (f"{again}KeyError: 'value'", False),
    ]


def test_what_is_gone_does_not_fail_any_more() -> None:
    faults = Faults()
    for name in ("A", "B"):
        faults.attempt("listing", fails, of=name)
    faults.attempt("sinks", fails)
    faults.keep("listing", {"B"})
    assert {(fault.part, fault.of) for fault in faults.failing()} == {("listing", "B"), ("sinks", "")}
    faults.clear()
    assert faults.failing() == ()
    assert (faults.counts()["listing"], faults.counts()["sinks"]) == (2, 1)
