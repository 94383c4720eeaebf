"""The benchmark of partitioning in a small form: every way gives the same results, and auto is even."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench.peers.workloads import WORKLOADS
from tests.bench.replication import costs


@pytest.mark.parametrize(("name", "replicates"), [("few-keys", False), ("skew", True)])
def test_all_ways_agree_and_the_planner_replicates_where_keys_are_skewed(name: str, replicates: bool) -> None:
    workload = WORKLOADS[name]
    small = replace(workload, streams=replace(workload.streams, rows=20_000, files=4))
    found = {cost["keys"]: cost for cost in costs(small, 4, batches=1)}
    assert found["hash"]["pairs"] == found["auto"]["pairs"] == found["replicate"]["pairs"] > 0
    assert (found["auto"]["heavy keys"] > 0) == replicates
    assert found["hash"]["heavy keys"] == found["replicate"]["heavy keys"] == 0
