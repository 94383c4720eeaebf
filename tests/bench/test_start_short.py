"""The benchmark of the start, once and short: it measures, and a start takes the processes it should."""

from pathlib import Path

import pytest

from tests.bench.start import idling, start_cold, tables


@pytest.mark.slow
@pytest.mark.spark
def test_a_start_and_idling_are_measured(tmp_path: Path) -> None:
    start = start_cold(tmp_path / "cold", {})
    idle = idling(tmp_path / "idle", 2, seconds=2, settle_s=0)

    assert 0 < start["answers_s"] < start["result_s"]
    assert start["cpu_s"] > 1
    assert start["processes"].count("JVM") == 1
    # Two daemons would be two sets of workers: Spark keeps those of other variables or other modules apart.
    assert start["processes"].count("worker_daemon") == 3, "a daemon and a worker per core"
    assert {"JVM", "service"} <= idle["2"].keys()
    assert "| **all** |" in tables({"cold": [start]}, idle)["idle"]
