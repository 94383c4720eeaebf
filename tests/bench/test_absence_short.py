"""The benchmark of absence, once and small: every load gives what DuckDB finds."""

from __future__ import annotations

import pytest

from tests.bench.absence import GROUPS, Load, figures, measure, report


@pytest.mark.parametrize("loads", GROUPS[:3], ids=("many-keys", "dense", "mixed"))
def test_outer_semi_and_anti_joins_are_measured_over_right_results(loads: tuple[Load, ...]) -> None:
    measured = measure(loads, part=0.0005, turns=1)
    first = loads[0].density
    results = {load.kinds: m.results for load, m in measured.items() if load.density == first}
    inner = results["inner",]
    if ("left",) in results:
        assert results["left",] == inner + results["anti",]
        assert all(results["semi",][n] <= inner[n] for n in inner)
    assert report(figures([measured])).count("\n") == 1 + len(loads)
