"""The punctuations benchmark in short: punctuations shrink the state and change no output."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.bench.punctuation_trials import Source, Trial, run, simulated
from tests.bench.punctuations import pwjoin_11, report


def test_punctuations_shrink_the_state_and_change_no_output() -> None:
    trial = Trial(Source(20), Source(30), (2, None), seconds=4, announces=True)
    promised, plain = run(trial, 1), run(trial.plain, 1)
    assert promised.pairs == plain.pairs
    assert sum(promised.pairs) > 100
    assert np.sum(promised.live) < np.sum(plain.live)
    assert sum(promised.announced) > 0
    eager = run(replace(trial, purge_after=1), 1)
    assert (eager.live, eager.announced) == (promised.live, promised.announced)
    assert sum(eager.held) <= sum(promised.held)


@pytest.mark.parametrize("windows_s", [(2, 1), (None, None)])
def test_the_state_is_that_of_the_papers_join(windows_s: tuple[float | None, float | None]) -> None:
    trial = Trial(Source(20), Source(30), windows_s, seconds=6)
    for each in (trial, trial.plain):
        live, papers = np.array(run(each, 1).live), simulated(each, 1)
        # A window ends with the newest row of the other stream, and not with the clock.
        assert np.abs(live - papers).max() <= (0 if windows_s[0] is None else 12)
        assert live.sum() == pytest.approx(papers.sum(), rel=0.02)


def test_a_report_has_a_row_for_each_figure() -> None:
    text = report({"pwjoin-11": {"seeds": 1, "findings": [["PWJoin", 394.0, None, "395", 2.0]]}})
    assert f"| pwjoin-11 | {pwjoin_11.__doc__} | PWJoin | 1 | 394 | ± 2 |  | 395 |" in text
