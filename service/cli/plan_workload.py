"""``sluice plan WORKLOAD.yaml``: the initial plan and its costs, without a catalog or Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from catalog.errors import InvalidDuration, InvalidInput
from catalog.times.clock import wall_clock_us
from catalog.times.durations import parse_duration_us
from catalog.values.calibration import Calibration
from catalog.values.plan import Strategy
from catalog.values.query import Query
from catalog.values.statistics import Profile
from catalog.values.stream import Stream
from planner.bind.bind import bind
from planner.build.placement.place_query import QueryPlaces
from planner.costs.cost import CostModelName
from planner.costs.rates import with_orders
from planner.drawing.svg import render_svg
from planner.errors import InvalidChain
from planner.explain.documents.preview_document import orders_document, statistics_document
from planner.explain.preview import Preview
from planner.explain.rendering.plan_report import plan_report
from planner.explain.rendering.render import plan_document, render_dot, render_mermaid
from planner.trees.choice import OrderChoice, RankedOrders
from service.config.settings import Settings
from service.documents.statistics_document import ChainDocument, read_statistics_file
from service.documents.workload import bind_workload, load_workload
from service.documents.yaml_files.yaml_document import locating
from service.inputs.reading.sample import WorkloadRows
from service.planning.preview import PreviewRequest, bounded_batches, preview_queries
from service.planning.records.objective import objective_of
from service.statistics.profile import merge_profiles
from service.statistics.samples.sampling import sample_profile

PlanForm = Literal["text", "json", "mermaid", "dot", "svg"]


def plan_text(
    path: Path,
    form: PlanForm,
    settings: Settings,
    calibration: Calibration,
    *,
    strategy: Strategy | None = None,
    cost_model: CostModelName | None = None,
    c_sys: float | None = None,
    statistics: Path | None = None,
    chain: ChainDocument | None = None,
    tell: Callable[[str], None] | None = None,
) -> str:
    """Return the plan of a workload file, with the cost of every strategy.

    Args:
        path: The workload file. Changes in its script are checked, but the plan does not include them.
        form: Output format; drawings show no costs.
        settings: Settings: the number of buckets, and the objective if neither file nor options set it.
        calibration: Cost constants of this machine.
        strategy: Strategy that overrides the strategies in the file, or None.
        cost_model: Cost model by which the plan is chosen, or None for the one in file or settings.
        c_sys: System overhead C_sys of the paper's model, comparisons per row and slice, or None.
        statistics: File of statistics that override sampled statistics, or None.
        chain: Slice boundaries whose cost is shown besides the costs of the strategies.
        tell: Called with a warning for each input that is left out of the plan.

    Raises:
        InvalidInput: A file, a query in it, or an option is invalid.
    """
    workload = load_workload(path)
    bound = bind_workload(workload)
    streams = bound.streams
    rows = WorkloadRows(tell=tell)
    objective = objective_of(settings.planning).changed(
        strategy=workload.strategy,
        family_strategies=workload.family_strategies,
        partitioning=workload.partitioning,
        probe=workload.probe,
        oblivious_memory=workload.oblivious_memory,
        oblivious_memory_mb=workload.oblivious_memory_mb,
    )
    by_name = {stream.name: stream for stream in streams}
    job = replace(Profile(), buckets=settings.bucket_count)
    places = QueryPlaces(
        objective.partitioning,
        by_name,
        profile=lambda entering: merge_profiles(Profile(), job, sample_profile(rows, streams, entering)),
    )
    queries, orders = _in_chosen_order(
        [places.placed(bound.queries[query.path]) for query in workload.queries],
        streams,
        OrderChoice(lambda pairs: sample_profile(rows, streams, pairs), calibration),
    )
    request = PreviewRequest(strategy=strategy, cost_model=cost_model, c_sys=c_sys, chain=chain)

    def profile(given: Profile) -> Profile:
        found = merge_profiles(given, job, sample_profile(rows, streams, queries))
        return bounded_batches(with_orders(found, streams), settings.batches.first_rows)

    def previewed(request: PreviewRequest) -> Preview:
        found = preview_queries(
            queries,
            streams,
            None,
            objective=objective,
            calibration=calibration,
            request=request,
            profile=profile,
        )
        return replace(found, orders=orders)

    if statistics is None:
        return _rendered(previewed(request), form)
    given, document = read_statistics_file(statistics)
    try:
        with locating(document, ()):
            return _rendered(previewed(replace(request, statistics=given)), form)
    except InvalidInput as error:
        if error.location is not None and error.location.file is None:
            # In a statistics file, a filter is the key of an entry. The error's location is therefore the
            # line of this key, and the error's text shows the position within the filter.
            error.location = document.location(error.path, key=True)
        raise


def _in_chosen_order(
    queries: Sequence[Query], streams: Sequence[Stream], choice: OrderChoice
) -> tuple[list[Query], dict[str, RankedOrders]]:
    """Return the queries, bound to their cheapest join orders, and the ranked join orders by query name."""
    by_name = {stream.name: stream for stream in streams}
    found, orders = [], {}
    for query in queries:
        if query.left is not None:
            query = bind(
                query.cql,
                by_name,
                name=query.name,
                query_id=query.id,
                backfill=query.backfill,
                choose=choice,
            )
        if choice.last is not None:
            orders[query.name], choice.last = choice.last, None
        found.append(query)
    return found, orders


def chain_option(texts: Sequence[str], family: str | None) -> ChainDocument | None:
    """Read the values of ``--chain``.

    Args:
        texts: ``10,30`` for both streams, or ``A=10,30`` for one. Lengths are written as in a workload file
            (``10``, ``10s``, ``5 min``); ``unbounded`` is the end of an unbounded window.
        family: Key or id of the family, or None if there is only one family.

    Returns:
        The boundaries, or None if ``texts`` is empty.

    Raises:
        InvalidChain: A value of the option has none of these forms.
    """
    if not texts:
        return None
    named = {}
    for text in texts:
        name, _, ends = text.rpartition("=")
        named[name.strip()] = [_boundary(end.strip(), text) for end in ends.split(",")]
    boundaries: object = named
    if "" in named:
        if len(named) > 1:
            raise InvalidChain(
                "one --chain is for both streams, another for one stream",
                hint="Write --chain 10,30 alone, or one for each stream: --chain A=10,30 --chain B=10.",
            )
        boundaries = named[""]
    return ChainDocument.model_validate({"family": family, "boundaries_s": boundaries})


def _boundary(text: str, option: str) -> float | None:
    if text == "unbounded":
        return None
    try:
        micros = parse_duration_us(text)
    except InvalidDuration as error:
        raise InvalidChain(
            f'chain "{option}": {error.primary}',
            hint="Write the times at which slices end: --chain 10,30, or --chain A=10,30 --chain B=10.",
        ) from error
    if micros == 0:
        raise InvalidChain(f'chain "{option}": a slice cannot end at 0', hint="Leave the 0 out.")
    return micros / 1e6


def _rendered(preview: Preview, form: PlanForm) -> str:
    reports = {r.family.id: r for r in preview.reports}
    if form == "mermaid":
        return render_mermaid(preview.plan, reports)
    if form == "dot":
        return render_dot(preview.plan, reports)
    if form == "svg":
        return render_svg(preview.plan)
    if form == "json":
        document = plan_document(preview.plan, reports)
        document["statistics"] = statistics_document(preview, now_us=wall_clock_us())
        document["orders"] = {name: orders_document(ranked) for name, ranked in preview.orders.items()}
        return json.dumps(document, indent=2, ensure_ascii=False)
    return plan_report(preview.plan, preview.reports, preview.orders)
