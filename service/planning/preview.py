"""Previews of changes of queries or of the objective, for a service or a workload file.

request ── queries that would run ── profile (given > measured > sampled) ── planner.explain.preview
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from catalog.errors import NameTaken, error_path
from catalog.steps import is_intermediate, stream_sides
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from catalog.values.calibration import Calibration
from catalog.values.counters.family_counters import SliceCounters
from catalog.values.plan import Plan, Strategy
from catalog.values.query import Backfill, Query
from catalog.values.statistics import Measure, Profile
from catalog.values.stream import Stream
from catalog.wording.wording import nearest_or_known
from planner.bind.bind import bind, refuse_backfill
from planner.build.build_plan import chooses_band
from planner.build.objective import Objective
from planner.build.placement.place_query import QueryPlaces
from planner.build.transitions.retained_boundaries import kept_families
from planner.costs.cost import Cost, CostModelName
from planner.costs.rates import with_orders
from planner.explain.explain import FamilyReport
from planner.explain.preview import HeldRows, Preview, explain_plan, preview, price_plan
from planner.families.families import families
from planner.families.texts.family_names import by_family
from planner.trees.choice import OrderChoice, RankedOrders
from service.checkpoint.buckets import stored_buckets
from service.documents.statistics_document import ChainDocument, StatisticsDocument
from service.documents.streams.stream_document import check_name
from service.errors import UnknownQuery
from service.inputs.reading.sample import SampleSource
from service.statistics.profile import merge_profiles, profile_of

if TYPE_CHECKING:
    from service.statistics.samples.sampling import SampleCache


@dataclass(frozen=True, slots=True)
class NewQuery:
    """A query that would be added.

    Attributes:
        name: Name of the query.
        cql: Text of the query.
        backfill: ``state`` to join rows that are in the state already, ``none`` to join only new rows.
    """

    name: str
    cql: str
    backfill: Backfill = "none"


@dataclass(frozen=True, slots=True)
class PreviewRequest:
    """Requested change, and the statistics for weighing it; omitted parts stay unchanged.

    Attributes:
        add: Queries that would be added.
        remove: Names of queries that would be removed, before others are added, so that names can be reused.
        strategy: Strategy of families without their own.
        family_strategies: Strategies of single families, by key or id.
        statistics: Statistics that override measured and sampled ones.
        cost_model: Model that decides.
        c_sys: C_sys of the paper's model.
        chain: Boundaries to be costed in addition to the strategies.
    """

    add: tuple[NewQuery, ...] = ()
    remove: tuple[str, ...] = ()
    strategy: Strategy | None = None
    family_strategies: Mapping[str, Strategy] = field(default_factory=dict)
    statistics: StatisticsDocument = field(default_factory=StatisticsDocument)
    cost_model: CostModelName | None = None
    c_sys: float | None = None
    chain: ChainDocument | None = None

    @property
    def reprices(self) -> bool:
        """Return whether the request overrides the service's prices or statistics."""
        priced = (self.cost_model, self.c_sys) != (None, None)
        return priced or self.statistics != StatisticsDocument()


@dataclass(slots=True)
class Statistician:
    """Finds the profile of queries in a catalog: measured by the job, else sampled from the inputs.

    Attributes:
        store: The catalog.
        rows: Source of samples.
        buckets: Number of buckets of the job, used if no batch has fixed it yet.
        max_rows_per_batch: Rows of a batch if all input exists from the start, or None if input arrives over
            time.
        cache: Results of earlier samples, or None before the first sample.
    """

    store: Store
    rows: SampleSource
    buckets: int
    max_rows_per_batch: int | None = None
    cache: SampleCache | None = None

    def profile(
        self, queries: Sequence[Query], given: Profile | None = None, *, samples: bool = False
    ) -> Profile:
        """Return the known statistics of some queries' streams, filters and families.

        Args:
            queries: Bound queries.
            given: Statistics that override all others.
            samples: Whether frequent keys or shares of bands are needed, which only samples provide.
        """
        given = Profile() if given is None else given
        measured = profile_of(self.store, now_us=wall_clock_us())
        if stored_buckets(self.store) is None:
            measured = replace(measured, buckets=self.buckets)
        sampled = Profile()
        if samples or not _covers(merge_profiles(given, measured, sampled), queries):
            # Imported only with the first sample, so that the API can answer without loading numba and pandas
            # (``engine.engine``).
            from service.statistics.samples.sampling import SampleCache, sample_profile

            if self.cache is None:
                self.cache = SampleCache()
            sampled = sample_profile(self.rows, self.store.streams.all(), queries, cache=self.cache)
        found = with_orders(merge_profiles(given, measured, sampled), self.store.streams.all())
        return found if self.max_rows_per_batch is None else bounded_batches(found, self.max_rows_per_batch)


def bounded_batches(profile: Profile, max_rows: int) -> Profile:
    """Return a profile with the batch length of a bounded run, whose batches are as large as allowed.

    A batch covers no more event time than all input does.

    Args:
        profile: Statistics, returned unchanged if they have a batch length, or rates that were not sampled.
        max_rows: Most rows of a batch, over all streams.
    """
    rates = [s.rate_per_s for s in profile.streams]
    rows_per_s = sum(rate.value for rate in rates)
    if profile.batch_s.origin != "assumed" or not rows_per_s or any(r.origin != "sampled" for r in rates):
        return profile
    at_us = min((rate.at_us for rate in rates if rate.at_us is not None), default=None)
    batch_s = max_rows / rows_per_s
    if profile.input_s is not None:
        batch_s = min(batch_s, profile.input_s)
    return replace(profile, batch_s=Measure(batch_s, "sampled", at_us))


def preview_change(
    store: Store,
    statistician: Statistician,
    objective: Objective,
    calibration: Calibration,
    request: PreviewRequest,
) -> Preview:
    """Return the effect of a request on the running plan; change nothing.

    Args:
        store: The catalog.
        statistician: Finds statistics.
        objective: Objective of the service; the request overrides it.
        calibration: Constants of this machine.
        request: The change.

    Raises:
        UnknownQuery: A query to be removed does not run.
        NameTaken: A query to be added has the name of another query.
        UnknownFamily: A strategy or chain names a family without queries.
        UnknownStatistic: Statistics are given for a stream or filter that does not exist.
        InvalidChain: The boundaries do not form a chain.
        InvalidInput: A query or filter is invalid. The ``path`` of errors is a path in the request's body.
    """
    streams = store.streams.all()
    previous = store.control_log.latest_plan()
    choice = OrderChoice(statistician.profile, calibration, previous)
    places = QueryPlaces(
        objective.partitioning,
        {stream.name: stream for stream in streams},
        previous,
        partial(statistician.profile, samples=True),
    )
    queries, orders = _queries_after(store, request, choice, places)
    samples = objective.partitioning == "auto" or chooses_band(queries, {s.id: s for s in streams}, previous)
    found = preview_queries(
        queries,
        streams,
        previous,
        objective=objective,
        calibration=calibration,
        request=request,
        profile=lambda given: statistician.profile(queries, given, samples=samples),
        held=held_rows(store, previous),
    )
    return replace(found, orders=orders)


def preview_queries(
    queries: Sequence[Query],
    streams: Iterable[Stream],
    previous: Plan | None,
    *,
    objective: Objective,
    calibration: Calibration,
    request: PreviewRequest,
    profile: Callable[[Profile], Profile],
    held: HeldRows | None = None,
) -> Preview:
    """Plan queries under the objective and statistics of a request.

    Args:
        queries: All queries that would run.
        streams: Registered streams.
        previous: Plan version in force, if any.
        objective: Objective in force, used where the request does not override it.
        calibration: Constants of this machine.
        request: Request with objective, statistics and chain; its queries are in ``queries`` already.
        profile: Finds the profile, given the statistics of the request.
        held: Rows held under ``previous``, or None if they are unknown.

    Raises:
        InvalidInput: See `preview_change`.
    """
    known = tuple(streams)
    with error_path("family_strategies"):
        by_family(request.family_strategies, queries)
    with error_path("statistics"):
        given = request.statistics.to_profile(queries, known)
    wanted, replanned = objective.with_strategies(
        queries, strategy=request.strategy, family_strategies=request.family_strategies
    )
    wanted = wanted.changed(cost_model=request.cost_model, c_sys=request.c_sys)
    with error_path("chain"):
        chains = {} if request.chain is None else request.chain.to_chains(queries)
        return preview(
            queries,
            {s.id: s for s in known},
            previous,
            objective=wanted,
            calibration=calibration,
            profile=profile(given),
            chains=chains,
            held=held,
            left=wanted.left(previous, queries, replanned),
            # A change keeps the families that it does not concern; with other prices or statistics all
            # families are planned again.
            keep=() if request.reprices else kept_families(previous, replanned),
        )


def explain_version(
    store: Store, statistician: Statistician, objective: Objective, calibration: Calibration, plan: Plan
) -> dict[str, FamilyReport]:
    """Return the costs of a plan version's families by the present statistics, under every strategy.

    Args:
        store: The catalog.
        statistician: Finds statistics.
        objective: Objective with the cost model.
        calibration: Constants of this machine.
        plan: Any version.
    """
    return explain_plan(plan, _present(store, statistician, plan), objective.models(calibration))


def price_version(
    store: Store, statistician: Statistician, objective: Objective, calibration: Calibration, plan: Plan
) -> dict[str, tuple[Cost, Cost]]:
    """Return the costs of a plan version's families, as planned and with a join per query, by family id.

    Arguments as for ``explain_version``.
    """
    return price_plan(plan, _present(store, statistician, plan), objective.models(calibration))


def _present(store: Store, statistician: Statistician, plan: Plan) -> Profile:
    """Return the present statistics of a plan's queries."""
    ids = {q.id for f in plan.families for q in f.queries}
    # An earlier version may contain streams that have been removed and can no longer be sampled.
    known = {stream.id for stream in store.streams.all()}
    queries = [
        record.query
        for record in store.queries.all()
        if record.query.id in ids and {side.stream_id for side in stream_sides(record.query)} <= known
    ]
    return statistician.profile(queries) if queries else Profile()


def held_rows(store: Store, plan: Plan | None) -> HeldRows | None:
    """Return the rows in the slices of a plan, or None before the first batch under the plan."""
    return _held(store, plan, lambda counters: counters.rows)


def held_bytes(store: Store, plan: Plan | None) -> HeldRows | None:
    """Return the encoded bytes in the slices of a plan, or None before the first batch under the plan."""
    return _held(store, plan, lambda counters: counters.bytes)


def _held(store: Store, plan: Plan | None, count: Callable[[SliceCounters], int]) -> HeldRows | None:
    last = store.batches.last_manifest()
    if plan is None or last is None or last.plan_version != plan.version:
        return None
    return {(s.family, s.join, "a" if s.side == "a" else "b", s.slice): float(count(s)) for s in last.slices}


def _queries_after(
    store: Store, request: PreviewRequest, choice: OrderChoice, places: QueryPlaces
) -> tuple[tuple[Query, ...], dict[str, RankedOrders]]:
    """Return the queries that would run (new ones with provisional ids), and the new ones' ranked orders."""
    orders = {}
    running = {record.query.name: record.query for record in store.queries.running()}
    names = sorted(running)
    for i, name in enumerate(request.remove):
        if name not in names:
            raise UnknownQuery(
                f'query "{name}" does not run', hint=nearest_or_known(name, names), path=("remove", i)
            )
        running.pop(name, None)
    first = max((record.query.id for record in store.queries.all()), default=0) + 1
    for i, new in enumerate(request.add):
        with error_path("add", i):
            check_name("query", new.name, ("name",))
            if new.name in running:
                raise NameTaken(
                    f'query "{new.name}" exists',
                    hint="Remove that query in the same request.",
                    path=("name",),
                )
        with error_path("add", i, "cql"):
            bound = bind(
                new.cql,
                places.streams,
                name=new.name,
                query_id=first + i,
                backfill=new.backfill,
                choose=choice,
            )
        if choice.last is not None:
            orders[new.name], choice.last = choice.last, None
        with error_path("add", i):
            refuse_backfill(bound, new.backfill)
        running[new.name] = places.placed(bound)
    return tuple(running.values()), orders


def _covers(profile: Profile, queries: Iterable[Query]) -> bool:
    """Return whether a profile has all statistics that some queries need, so that no sample is needed."""
    streams = {s.stream_id for s in profile.streams if s.row_bytes is not None}
    filters = {(f.stream_id, f.sql) for f in profile.filters}
    joins = {f.family for f in profile.families}
    members = tuple(queries)
    grouped = families(members)
    # Intermediate pairs have no source to sample.
    sampled = {name for name, of in grouped.items() if not is_intermediate(of[0].a.stream_id)}
    return joins >= sampled and all(
        side.stream_id in streams and (side.filter is None or (side.stream_id, side.filter) in filters)
        for query in members
        for side in stream_sides(query)
    )
