from __future__ import annotations

import json
import random

import numpy as np
import pytest

from operators.lineage.query_sets import QuerySets, query_keys
from operators.lineage.route_counts import RouteCounts
from service.commit.reported_routes import read_routes, reported


@pytest.mark.parametrize("queries", [1, 64, 65, 300])
@pytest.mark.parametrize("routes", [1, 500])
def test_what_a_bucket_reports_is_what_the_driver_reads(queries: int, routes: int) -> None:
    rng = random.Random(queries + routes)
    ids = tuple(rng.sample(range(1, 10_000), queries))
    sets = QuerySets.of(ids, sorted({rng.getrandbits(queries) | 1 for _ in range(routes)}))
    pairs = np.array([rng.randint(1, 1000) for _ in range(len(sets))], dtype=np.int64)
    counts = RouteCounts(sets.numbers(query_keys(ids)), sets, pairs)
    facts = json.loads(json.dumps(reported(counts)))
    numbers, found = read_routes(facts)
    assert dict(zip(numbers.tolist(), found.ids(), strict=True)) == counts.ids()
    assert {q: n for q, n in zip(facts["queries"], facts["rows"], strict=True) if n} == counts.query_rows()
