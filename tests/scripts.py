"""Random scripts: names that come, change, rest, come back and go, and strategies that change in between.

One seed gives everything, as in ``tests.workloads``, which makes the streams, the files and the queries.
Every column is kept, so that the design decides every backfill; a name changes once per batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from catalog.values.plan import Strategy
from tests.oracle import replay
from tests.workload_spec import QuerySpec, Step, WorkloadSpec
from tests.workloads import FilterPools, Maker, Size, write_workload

STRATEGIES: tuple[Strategy, ...] = ("unshared", "pullup", "pushdown", "mem-opt", "cpu-opt")

#: Many small files: a batch each, so that a script has many boundaries and a run is long enough to be killed.
SCRIPTED = Size(rows=400, queries=9, steps=5, max_pairs=3000, files=(12, 16))
#: Changes per boundary at which something changes.
_MOST_CHANGES = 3


def make_script(
    seed: int, directory: Path, size: Size = SCRIPTED
) -> tuple[WorkloadSpec, dict[str, list[pa.Table]]]:
    """Make a random scripted workload and write its files and ``WORKLOAD.yaml``.

    Args:
        seed: The only source of randomness.
        directory: Where to write.
        size: How large it is to be; ``steps`` of its queries come by script.

    Returns:
        The description and each stream's tables in file order.
    """
    maker = Maker(seed, directory, size, wide=True)
    families, pools = maker.streams_and_families()
    queries = [maker.query(f"q{i + 1}", families, pools) for i in range(size.queries)]
    spec = WorkloadSpec(
        tuple(maker.streams),
        tuple(queries[: size.queries - size.steps]),
        seed=seed,
        strategy=STRATEGIES[int(maker.rng.integers(len(STRATEGIES)))],
    )
    batches = replay(spec, maker.files).batches
    script = _Script(maker, pools, spec.queries, queries[size.queries - size.steps :])
    for batch in range(1, batches):
        script.boundary(batch)
    spec = replace(spec, script=tuple(script.steps))
    write_workload(spec, maker.files, directory)
    return spec, maker.files


class _Script:
    """The names as the script goes on.

    Args:
        maker: Gives windows, filters and residuals, and is the source of randomness.
        pools: Filters that queries share.
        first: Queries of batch 0.
        later: Queries that are to come.
    """

    def __init__(
        self, maker: Maker, pools: FilterPools, first: Sequence[QuerySpec], later: Sequence[QuerySpec]
    ) -> None:
        self.maker, self.pools = maker, pools
        self.running = {q.name: q for q in first}
        self.paused: dict[str, QuerySpec] = {}
        self.later = list(later)
        self.steps: list[Step] = []

    def boundary(self, batch: int) -> None:
        """Change some names, each once, and now and then the strategy."""
        rng = self.maker.rng
        if rng.random() < 0.35:
            return
        touched: set[str] = set()
        for _ in range(int(rng.integers(1, _MOST_CHANGES + 1))):
            step = self._change(batch, touched)
            if step is not None:
                self.steps.append(step)
        if rng.random() < 0.25:
            self.steps.append(Step(batch, migrate=STRATEGIES[int(rng.integers(len(STRATEGIES)))]))

    def _change(self, batch: int, touched: set[str]) -> Step | None:
        rng = self.maker.rng
        running = sorted(self.running.keys() - touched)
        paused = sorted(self.paused.keys() - touched)
        kinds = ["add"] * bool(self.later) + ["resume"] * (2 * bool(paused))
        # At least one query stays, so that a run always has something to show.
        kinds += ["update", "update", "pause", "remove"] * (len(running) > 1)
        if not kinds:
            return None
        kind = kinds[int(rng.integers(len(kinds)))]
        if kind == "add":
            query = self.later.pop(0)
            query = replace(query, backfill="state" if rng.random() < 0.6 else "none")
            self.running[query.name] = query
            touched.add(query.name)
            return Step(batch, add=query)
        name = str(rng.choice(paused if kind == "resume" else running))
        touched.add(name)
        if kind == "resume":
            self.running[name] = self.paused.pop(name)
            return Step(batch, resume=name)
        query = self.running.pop(name)
        if kind == "pause":
            self.paused[name] = query
            return Step(batch, pause=name)
        if kind == "remove":
            return Step(batch, remove=name)
        self.running[name] = self.maker.revised(query, self.pools)
        return Step(batch, update=self.running[name])
