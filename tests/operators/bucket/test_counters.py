from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.counters.family_counters import KeyCounters
from operators.bucket.counters import key_counters
from tests.builders import a_query
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.operators.harness import Runner
from tests.operators.queries import Row, a_table
from tests.operators.segment_builders import STREAMS, a_plan


@settings(SETTINGS, max_examples=examples(100))
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2), min_size=1, max_size=30))
def test_keys_are_counted_by_their_runs(keys: list[int]) -> None:
    found = key_counters("f", "b", np.array(sorted(keys)), None)
    frequencies = Counter(keys).values()
    squares = sum(n * n for n in frequencies)
    assert found == KeyCounters("f", "b", len(keys), len(frequencies), max(frequencies), squares, len(keys))


def test_each_bucket_counts_the_keys_of_its_rows_that_are_not_late() -> None:
    runner = Runner(STREAMS, buckets=3)
    plan = a_plan(a_query(1, 50, filter_a='"v" < 5'))

    def step(*rows: tuple[int, int, int]) -> list[KeyCounters]:
        given = [Row(n, ts, {"k": k, "m": None, "v": v, "w": None}) for n, (ts, k, v) in enumerate(rows)]
        outputs = runner.step({1: a_table(STREAMS[1], given)}, [plan] if runner.batch == 0 else [])
        return [counters for output in outputs for counters in output.keys]

    found = step((10, 1, 0), (10, 1, 0), (10, 2, 0), (10, 3, 0), (10, 4, 9))
    assert sum(c.rows for c in found) == 4
    assert sum(c.keys for c in found) == 3
    assert max(c.largest for c in found) == 2
    assert sum(c.squares for c in found) == 4 + 1 + 1
    assert {(c.family, c.side) for c in found} == {(plan.families[0].id, "a")}
    assert step((9, 1, 0)) == []
