"""Work of a calibration run, computed from the run's counters: the input of the fit of the constants."""

from __future__ import annotations

from dataclasses import replace

from catalog.values.plan import Plan
from planner.costs.calibration.calibrated import Work, batch_overlap, input_work, slice_work
from planner.costs.cost import SliceLoad
from planner.costs.loads.loads import join_input
from planner.costs.rates import family_rates
from planner.families.families import SIDES, side_chain
from service.calibrate.pipeline import Measured
from service.calibrate.workload import SECOND_US, SyntheticWorkload


def counted_work(workload: SyntheticWorkload, plan: Plan, measured: Measured) -> Work:
    """Return the work of a run per second of event time.

    Args:
        workload: The workload that ran.
        plan: The plan under which the workload ran.
        measured: Counters of the run.
    """
    (family,) = plan.families
    seconds = measured.batches * workload.batch_s
    rates = family_rates(family, family.stream_a, family.stream_b, workload.profile)
    work = input_work(join_input(family, family.joins, rates)) + Work(
        stored_segments=measured.stored_segments / seconds, stored_bytes=measured.stored_bytes / seconds
    )
    columns = sum(len(family.carried(side)) for side in SIDES)
    for join in family.joins:
        for side in SIDES:
            chain = side_chain(join, side)
            for number, piece in enumerate(chain, 1):
                counts = measured.slices[join.id, side, number]
                load = SliceLoad(
                    side=side,
                    w_start_s=piece.w_start_us / SECOND_US,
                    w_end_s=piece.w_end_us / SECOND_US,
                    first=number == 1,
                    last=number == len(chain),
                    judged_per_s=0.0,
                    entering_per_s=(counts.inserted + counts.moved_in) / seconds,
                    held_rows=counts.rows / measured.batches,
                    held_bytes=counts.bytes / measured.batches,
                    chain_males_per_s=0.0,
                    males_per_s=counts.males / seconds,
                    candidates_per_s=counts.product / seconds,
                    matches_per_s=counts.touched / seconds,
                    results_per_s=counts.results / seconds,
                    boundaries=0,
                    judged_results_per_s=0.0,
                    unions=0,
                    batch_s=workload.batch_s,
                    buckets=workload.buckets,
                    segments=counts.segments / measured.batches / workload.buckets,
                    result_columns=columns,
                )
                # The cost model assumes that rows are joined one by one. The engine joins a whole batch at
                # once and therefore counts more matches.
                matches = load.matches_per_s / (1.0 + batch_overlap(load))
                work += slice_work(replace(load, matches_per_s=matches))
    return work
