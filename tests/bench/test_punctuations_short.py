"""The punctuations benchmark in short: punctuations shrink the state and change no output."""

from __future__ import annotations

from dataclasses import replace

from tests.bench.punctuations import Source, Trial, run


def test_punctuations_shrink_the_state_and_change_no_output() -> None:
    trial = Trial(Source(20), Source(20, shuffled=True), (2, None), seconds=4)
    promised, plain = run(trial, 1), run(replace(trial, promises=False), 1)
    assert promised.pairs == plain.pairs
    assert sum(promised.pairs) > 100
    assert promised.state() < plain.state()
    assert sum(promised.announced) > 0
    eager = run(replace(trial, purge_after=1), 1)
    assert (eager.live, eager.announced) == (promised.live, promised.announced)
    assert sum(eager.held) <= sum(promised.held)
