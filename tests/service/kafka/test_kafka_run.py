"""`sluice run` over two topics: all of what they hold, joined; what is not an event is kept apart."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from tests.service.kafka.brokers import Brokers
from tests.sluice_run import per_query_results, run


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_two_topics_are_joined(kafka: Brokers, tmp_path: Path) -> None:
    seed = 23
    rng = Random(seed)
    sides: dict[str, list[tuple[int, int]]] = {}
    for name, partitions in (("orders", 3), ("payments", 2)):
        kafka.tell("create", name, partitions)
        times = sorted(rng.randrange(600_000_000) for _ in range(400))
        rows = [(t, rng.randrange(20)) for t in times]
        sides[name] = rows
        sent = [
            {"value": json.dumps({"ts": t, "k": k}).encode(), "partition": i % partitions}
            for i, (t, k) in enumerate(rows)
        ]
        sent.insert(100, {"value": b"no event", "partition": 0})
        kafka.produce(name, sent)
    streams = "".join(
        f"""
  - name: {name}
    columns: {{ts: timestamp, k: bigint}}
    event_time: ts
    lateness: 1m
    source: {{type: kafka, bootstrap: "{kafka.bootstrap}", topic: {name}, on_bad: dead-letter}}"""
        for name in sides
    )
    workload = tmp_path / "workload.yaml"
    workload.write_text(
        f"""
streams:{streams}
queries:
  - name: q
    cql: >-
      SELECT a.ts AS t, a.k AS k, b.ts AS u
      FROM orders [RANGE 30 SECONDS] AS a, payments [RANGE 30 SECONDS] AS b
      WHERE a.k = b.k
"""
    )
    out = tmp_path / "out"
    outcome = run(workload, out, environment={"SLUICE_MAX_ROWS_PER_BATCH": "150"})
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.summary["batches"] >= 6
    expected = sorted(
        (t, k, u)
        for t, k in sides["orders"]
        for u, other in sides["payments"]
        if k == other and abs(t - u) <= 30_000_000
    )
    assert expected
    columns = per_query_results(out, "q").select(["t", "k", "u"]).columns
    found = sorted(zip(*(column.cast(pa.int64()).to_pylist() for column in columns), strict=True))
    assert found == expected, f"seed {seed}"
    letters = [p for p in out.rglob("*.jsonl") if "dead_letters" in p.parts]
    assert sorted(p.name.partition("-")[0] for p in letters) == ["orders", "payments"]
