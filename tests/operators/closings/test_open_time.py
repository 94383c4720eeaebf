"""The open time of keys is the time until they are closed, whenever their rows are removed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from catalog.values.policies.punctuation_policy import PunctuationPolicy
from operators.bucket.counters import punctuation_counters
from operators.closings import closed_keys
from tests.builders import a_query
from tests.operators.closings.scenes import Scene

OPEN_US, STEP_US = 100, 10


@pytest.mark.parametrize(
    ("purge_after", "window_us", "sample"), [(1, 150, 10_000), (10**9, 150, 10_000), (10**9, 10_000, 100)]
)
def test_the_open_time_does_not_depend_on_when_rows_are_removed(
    purge_after: int, window_us: int, sample: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed_keys, "_SAMPLE", sample)
    random = np.random.default_rng(1)
    arrives = np.sort(random.integers(0, 100 * STEP_US, 2_000))
    closes = arrives + random.exponential(OPEN_US, len(arrives)).astype(int)
    keys = random.permutation(len(arrives))
    scene = Scene(query=a_query(1, window_us))
    (plan,) = scene._plans
    policy = PunctuationPolicy(purge_after=purge_after)
    scene._plans = [replace(plan, families=tuple(replace(f, punctuations=policy) for f in plan.families))]
    waited_us = died = 0
    for end in range(STEP_US, 100 * STEP_US + 1, STEP_US):
        came = (arrives >= end - STEP_US) & (arrives < end)
        closed = (closes >= end - STEP_US) & (closes < end)
        rows = [(int(ts), int(key)) for ts, key in zip(arrives[came], keys[came], strict=True)]
        scene.batch(a=rows, b=[(end, -1), *([int(key)] for key in keys[closed])])
        (bucket,) = scene.runner.state
        (counted,) = punctuation_counters(bucket.families)
        waited_us += counted.live * STEP_US
        died += counted.died
    assert died > 1_000
    assert waited_us / died == pytest.approx(OPEN_US, rel=0.1 if sample > 1_000 else 0.2)
