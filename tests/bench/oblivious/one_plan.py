"""Query 2 of WO-Join as one query: J3(J1(S1, S2, S3), J2(S4, S5, S6)) in one plan.

S2 comes at an eighth of its rate from 10 s to 40 s, as in Query 1. So the results of J1 are held back, and
those of J2 wait for them in J3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from catalog.steps import is_intermediate
from catalog.values.control import Heartbeat
from catalog.values.plan import FamilyPlan
from catalog.values.policies.memory import Memory
from catalog.values.stream import Order
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.families.families import SideName, side_stream
from tests.bench.oblivious.arriving import Arriving, rows_of
from tests.bench.oblivious.queries import factors, held_rows, query_1_streams
from tests.builders import SECOND_US
from tests.operators.harness import Runner
from tests.operators.test_orders import ordered_stream, saving

NAMES = "ABCDEF"
_CONDITIONS = " AND ".join(f"{a.lower()}.e = {b.lower()}.e" for a, b in pairwise(NAMES))
QUERY = (
    f"SELECT a.v AS v FROM {', '.join(f'{name} {name.lower()}' for name in NAMES)} WHERE {_CONDITIONS} "
    "TREE (((a, b), c), ((d, e), f))"
)


@dataclass(slots=True)
class WholeRun:
    """A run of Query 2 in one plan.

    Attributes:
        held: Rows in memory at the end of each batch: of ``S1-S6``, of ``S7, S8``, and ``pairs`` inside of J1
            and J2.
        results: Number of results.
        possible: Results of the whole streams.
    """

    possible: int
    held: list[Counter[str]] = field(default_factory=list)
    results: int = 0

    def mean(self, what: str) -> float:
        """Return the mean rows in memory."""
        return float(np.mean([held[what] for held in self.held]))


def run_whole(seed: int, end_s: int, memory: Memory) -> WholeRun:
    """Run Query 2 in batches of a second, and then until all streams have ended.

    Args:
        seed: Of the streams.
        end_s: End of the streams.
        memory: Where rows wait.
    """
    drawn = [
        *query_1_streams(2 * seed, end_s, disturbed=True)[:2],
        query_1_streams(2 * seed, end_s, disturbed=False)[2],
        *query_1_streams(2 * seed + 1, end_s, disturbed=False),
    ]
    streams = {
        n: replace(ordered_stream(n, NAMES[n - 1], "bigint", Order("e", scramble)), lateness_us=0)
        for n, scramble in enumerate(factors(drawn), 1)
    }
    query = bind(QUERY, {s.name: s for s in streams.values()}, name="q", query_id=1)
    plan = saving(build_plan([query], streams), memory)
    runner, run = Runner(streams), WholeRun(_possible(drawn))
    for second in range(end_s):
        tables = {
            n: rows_of(streams[n], of, of.before(second), of.before(second + 1))
            for n, of in enumerate(drawn, 1)
        }
        runner.step(tables, [plan] if second == 0 else [])
        run.held.append(held_rows(runner, _made_by))
    nothing = {n: rows_of(streams[n], of, 0, 0) for n, of in enumerate(drawn, 1)}
    runner.step(nothing, heartbeats=[Heartbeat(n, end_s * SECOND_US) for n in streams])
    run.results = sum(runner.results.values())
    return run


def _possible(drawn: Sequence[Arriving]) -> int:
    """Return the number of results of whole streams."""
    most = 1 + max(int(stream.values.max()) for stream in drawn)
    counts = [np.bincount(stream.values, minlength=most) for stream in drawn]
    return int(np.prod(counts, axis=0).sum())


def _made_by(family: FamilyPlan, side: SideName) -> str:
    """Return what the rows of a side are."""
    if not is_intermediate(side_stream(family, side)):
        return "S1-S6"
    return "S7, S8" if is_intermediate(family.stream_b) else "pairs"
