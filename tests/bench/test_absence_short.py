"""The benchmark of absence, once and small: every load gives what DuckDB finds."""

from __future__ import annotations

import pytest

from tests.bench.absence import GROUPS, Load, figures, measure, report


@pytest.mark.parametrize("loads", GROUPS[:2], ids=("many-keys", "dense"))
def test_outer_semi_and_anti_joins_are_measured_over_right_results(loads: tuple[Load, ...]) -> None:
    measured = measure(loads, part=0.0005, turns=1)
    results = {load.kind: m.results for load, m in measured.items()}
    assert results["left"] == results["inner"] + results["anti"]
    assert all(results["semi"][n] <= results["inner"][n] for n in results["inner"])
    assert report(figures([measured])).count("\n") == 1 + len(loads)
