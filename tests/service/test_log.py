"""A log line has the event and every field that came with it, in both forms."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import threading
from collections.abc import Iterator

import pytest

from service.log import _Repeats, fields, setup_logging


@pytest.fixture(autouse=True)
def _former_handlers() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def _logged(form: str, capsys: pytest.CaptureFixture[str], **extra: object) -> str:
    setup_logging(form=form)
    logging.getLogger("service.engine.engine").info("plan %s", "activated", extra=extra)
    return capsys.readouterr().err


def test_text_has_fields_behind_the_event(capsys: pytest.CaptureFixture[str]) -> None:
    line = _logged("text", capsys, plan_version=7, cause="add q")
    date, time, rest = line.split(" ", 2)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", f"{date} {time}")
    assert rest == "INFO service.engine.engine plan activated plan_version=7 cause=add q\n"


def test_json_has_fields_as_keys(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(_logged("json", capsys, plan_version=7))
    assert document.pop("time")
    assert document == {
        "level": "INFO",
        "logger": "service.engine.engine",
        "event": "plan activated",
        "plan_version": 7,
    }


def test_fields_may_have_names_of_records(capsys: pytest.CaptureFixture[str]) -> None:
    line = _logged("text", capsys, **fields(name="flights", path="a.parquet"), batch=3)
    assert line.endswith(" plan activated batch=3 name=flights path=a.parquet\n")


HOSTILE = "a\n2026-01-01 ERROR forged\x1b[2J\x85\u2028\ud800\0"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_text_from_outside_stays_in_its_line(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging(form=form)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("api").error("refused %s", HOSTILE, extra={"path": HOSTILE}, exc_info=True)
    logging.getLogger("api").error("refused", extra={"path": "x" * 100_000})
    text = capsys.readouterr().err
    lines = text.splitlines() if form == "json" else text.split("\n")
    assert all(line.isprintable() for line in lines)
    if form == "json":
        first, second = map(json.loads, lines)
        first["event"].encode()
        first["path"].encode()
        assert (first["level"], second["event"]) == ("ERROR", "refused")
    else:
        assert [line[:4] == "2026" and " ERROR api refused" in line for line in lines].count(True) == 2
        assert max(map(len, lines)) < 11_000


def test_an_event_without_fields_is_the_event(capsys: pytest.CaptureFixture[str]) -> None:
    assert _logged("text", capsys).endswith(" INFO service.engine.engine plan activated\n")


def test_lines_go_to_what_stderr_is_now(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    setup_logging()
    above = io.StringIO()
    monkeypatch.setattr(sys, "stderr", above)
    logging.getLogger("service.engine.engine").info("plan activated")
    assert above.getvalue().endswith("INFO service.engine.engine plan activated\n")


def test_what_py4j_says_of_a_dead_jvm_is_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("DEBUG")
    root = logging.getLogger()
    said = "Exception while sending command."
    root.handle(root.makeRecord("root", logging.INFO, "/x/py4j/java_gateway.py", 1038, said, (), None))
    logging.getLogger("py4j.clientserver").error(said)
    root.handle(root.makeRecord("root", logging.INFO, "/x/ours.py", 1, "something else", (), None))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("INFO root something else")


def test_equal_warnings_are_written_once_a_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    setup_logging()
    log = logging.getLogger("service.sinks.deliverer")
    clock_s = [0.0]
    monkeypatch.setattr("time.time", lambda: clock_s[0])
    monkeypatch.setattr("time.time_ns", lambda: int(clock_s[0] * 1e9))
    for second in range(130):
        clock_s[0] = float(second)
        log.warning("catalog is down")
        log.warning("batch failed", extra={"batch": second})
        log.info("looked")
    lines = capsys.readouterr().err.splitlines()
    down = [line.partition("deliverer ")[2] for line in lines if "down" in line]
    assert down == ["catalog is down", "catalog is down repeated=59", "catalog is down repeated=59"]
    assert sum("batch failed" in line for line in lines) == 130, "other fields make another line"
    assert sum("looked" in line for line in lines) == 130


def test_threads_that_warn_at_the_same_time_do_not_disturb_each_other() -> None:
    repeats = _Repeats()
    failed: list[BaseException] = []

    def warn(name: str) -> None:
        try:
            for number in range(1000):
                fields = {"msg": f"{name} {number}", "levelno": logging.WARNING, "created": number * 100.0}
                assert repeats.filter(logging.makeLogRecord(fields))
        except BaseException as problem:  # raised again below
            failed.append(problem)

    threads = [threading.Thread(target=warn, args=(name,)) for name in "abcdefgh"]
    switched_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switched_s)
    for problem in failed:
        raise problem
