"""The benchmark of the start, once and short: it measures, and a start takes the processes it should."""

from pathlib import Path

import pytest

from tests.bench.start import Idle, Service, Start, figures, write_file


@pytest.mark.slow
@pytest.mark.spark
def test_a_start_and_idling_are_measured(tmp_path: Path) -> None:
    write_file(tmp_path, 0)
    with Service(tmp_path, {}) as running:
        answers_s = running.answers()
        running.begin(1)
        start = running.measured(answers_s, 0)
        idle = running.idle(1, seconds=2, settle_s=0)

    assert 0 < start.answers_s < start.result_s
    assert start.cpu_s > 1
    assert start.processes.count("JVM") == 1
    # Two daemons would be two sets of workers: Spark keeps those of other variables or other modules apart.
    daemons_and_workers = [name for name in start.processes if name == "worker_daemon"]
    assert len(daemons_and_workers) == 3, "a daemon and a worker per core"
    assert {"JVM", "service"} <= idle.cores.keys()


def test_the_report_has_medians_of_all_runs() -> None:
    starts = [Start(answers_s, 9.0, 17.0, 0.1, ()) for answers_s in (1.0, 2.5, 2.0)]
    idles = {0: Idle(0, 0.0, {"JVM": 0.01, "service": 0.02, "quiet": 0.0})}

    text = figures({"cold": starts}, idles)

    assert "| cold | 2.0 | 9.0 | 17.0 | 0.1 |" in text
    assert "| JVM | 1.0 |" in text
    assert "quiet" not in text
    assert "| **all** | 3.0 |" in text
