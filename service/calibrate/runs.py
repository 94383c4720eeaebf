"""Runs of the workloads of `designs`, from which the cost constants are fitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from catalog.values.plan import Plan, Strategy
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from service.calibrate.counted_work import counted_work
from service.calibrate.designs import Design, designs
from service.calibrate.fit import MeasuredRun
from service.calibrate.pipeline import measure
from service.calibrate.workload import SyntheticWorkload

#: Seed of the random workloads, fixed so that every machine gets the same rows.
SEED = 20_060_912


def calibration_runs(workloads: int, batches: int, *, say: Callable[[str], None]) -> list[MeasuredRun]:
    """Run the corner workloads and random workloads, and return their measurements.

    Args:
        workloads: Number of random workloads, in addition to the corner workloads.
        batches: Number of batches to measure per workload.
        say: Prints a line per workload.
    """
    chosen = list(designs(workloads, seed=SEED))
    warm_up(chosen[0].workload)
    runs = []
    for number, design in enumerate(chosen, 1):
        found = runs_of(design, batches)
        took = ", ".join(f"{s} {_ms(r, design)}" for s, r in zip(design.strategies, found, strict=True))
        say(f"[{number}/{len(chosen)}] {design.workload.name}: {took} ms of CPU per batch")
        runs += found
    return runs


def runs_of(design: Design, batches: int) -> list[MeasuredRun]:
    """Run a design's workload under each of its strategies."""
    workload, planned = design.workload, plans(design.workload, design.strategies)
    measured = measure(workload, planned, batches=batches)
    seconds = {name: found.batches * workload.batch_s for name, found in measured.items()}
    return [
        MeasuredRun(
            name=f"{workload.name}, {strategy}",
            work=counted_work(workload, planned[strategy], measured[strategy]),
            pack_s=measured[strategy].pack_s / seconds[strategy],
            chain_s=measured[strategy].chain_s / seconds[strategy],
        )
        for strategy in design.strategies
    ]


def plans(workload: SyntheticWorkload, strategies: Sequence[Strategy]) -> dict[Strategy, Plan]:
    """Plan a workload under several strategies; CPU-Opt uses the paper's cost model.

    Args:
        workload: Streams and queries.
        strategies: The strategies.
    """
    streams = {stream.id: stream for stream in workload.streams.values()}
    return {
        strategy: build_plan(
            workload.bound_queries,
            streams,
            objective=Objective(strategy, cost_model="paper"),
            profile=workload.profile,
        )
        for strategy in strategies
    }


def warm_up(workload: SyntheticWorkload) -> None:
    """Run a workload once untimed, so that later measurements do not include imports and compilation."""
    measure(workload, plans(workload, ["mem-opt"]), batches=1)


def _ms(run: MeasuredRun, design: Design) -> str:
    return f"{(run.pack_s + run.chain_s) * design.workload.batch_s * 1e3:.1f}"
