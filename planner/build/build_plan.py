"""The shared plan of all queries: families, lineage bits, activations, joins.

    queries ── families ── filters (bits) ── strategy (joins) ── replication ── check_plan ── Plan

A plan depends on its queries, on the previous plan and, if the strategy compares costs, on the given
statistics. It never depends on the order of the queries or statistics. Bits, activations and replication are
carried over from the previous plan; everything else is derived from the queries' content. So the same
arguments give the same bytes in every process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from catalog.steps import (
    exchanged_id,
    intermediate_id,
    is_exchanged,
    step_order,
    stream_sides,
    widest_sides,
)
from catalog.values.calibration import Calibration
from catalog.values.plan import (
    ALL_BUCKETS,
    Band,
    Boundaries,
    FamilyPlan,
    JoinPlan,
    Plan,
    PlannedFilter,
    PlannedQuery,
    Replication,
    Strategy,
)
from catalog.values.policies.probe import AskedProbe, Probe
from catalog.values.policies.punctuation_policy import PunctuationPolicy, PurgePrices
from catalog.values.query import Query, Side
from catalog.values.statistics import Profile
from catalog.values.stream import Stream
from catalog.wording.wording import listed
from planner.build.check_plan import check_plan
from planner.build.choose_memory import choose_memory, may_sort
from planner.build.objective import Objective
from planner.build.placement.replication import (
    HASHED,
    asked_replication,
    departed_replications,
    former_replications,
    refuse_spread_pairs,
)
from planner.build.resting import unrested_families
from planner.build.transitions.retained_boundaries import NO_BOUNDARIES, ByFamily, pinned_chain, with_retained
from planner.costs.calibration.shipped import SHIPPED
from planner.costs.rates import FamilyRates, family_rates, with_handed, with_open_times
from planner.errors import InvalidPlan, InvalidProbe, UnknownStrategy
from planner.families.bands import candidate_bands, leading_band
from planner.families.families import (
    SIDES,
    Family,
    families,
    is_theta,
    planned_query,
    result_columns,
)
from planner.families.filters import assign_bits, first_bit, kept_counts
from planner.predicates.logic.limits import Types
from planner.probes.asked_probe import probe_text
from planner.probes.choose_probe import choose_probe, may_have_rings
from planner.probes.purge_prices import purge_prices
from planner.strategies.strategies import STRATEGIES

_NOTHING_KNOWN = Profile()
_MEM_OPT = Objective()


def build_plan(
    queries: Sequence[Query],
    streams: Mapping[int, Stream],
    previous: Plan | None = None,
    *,
    objective: Objective = _MEM_OPT,
    calibration: Calibration = SHIPPED,
    profile: Profile = _NOTHING_KNOWN,
    left: ByFamily = NO_BOUNDARIES,
    keep: Collection[str] = (),
) -> Plan:
    """Plan all queries together, as the plan version that follows ``previous``.

    Args:
        queries: All running queries, bound; any order.
        streams: Streams by id; at least those that the queries use.
        previous: Plan version in force until now; None for the first one.
        objective: Strategies, pinned chains, cost model and partitioning. It may name families that do not
            exist, because all their queries may have left. All queries of a pinned family share one chain,
            whatever the family's strategy.
        calibration: Constants of the calibrated cost model.
        profile: Statistics that ``cpu-opt`` uses; missing values are assumed (``costs.rates``).
        left: Boundaries of departed queries that stay in the chains, by family id.
        keep: Ids of families whose joins are chosen again only if their queries change.

    Returns:
        The next plan version, checked.

    Raises:
        UnknownStrategy: There is no strategy of that name.
        InvalidProbe: Rings are requested for a family that cannot have them.
        UnsupportedCql: A step joins pairs of two other steps, which would not meet in one bucket
            (``replication``).
        InvalidPlan: A query uses a stream that is not given, or an invariant is broken.
    """
    for name in (objective.strategy, *objective.family_strategies.values()):
        if name not in STRATEGIES:
            raise UnknownStrategy(
                f'strategy "{name}" does not exist', hint=f"Strategies: {listed(STRATEGIES)}."
            )
    version = 1 if previous is None else previous.version + 1
    next_bit = {} if previous is None else dict(previous.next_bit)
    before = {} if previous is None else {f.id: f for f in previous.families}
    since = {q.id: q.since_version for f in before.values() for q in f.queries}
    replications = former_replications(previous)
    own, model = objective.by_family(queries), objective.models(calibration).deciding
    own_probes = objective.probes_by_family(queries)
    policies = objective.policies_by_family(queries)

    planned: list[FamilyPlan] = []
    grouped = families(queries)
    spread: dict[int, Replication] = {}
    firsts = {name: members[0] for name, members in grouped.items()}
    joined = {n: (q.a.stream_id, q.b.stream_id, q.key, q.clocks) for n, q in firsts.items()}
    profile = with_open_times(profile, {n: facts[:3] for n, facts in joined.items()}, streams)
    unrested = unrested_families(grouped, before, replications, streams)
    again = frozenset(unrested.values())
    for family_id in step_order(joined):
        members = grouped[family_id]
        family = _family(family_id, members, before.get(family_id), next_bit, since, version)
        rates = family_rates(family, members[0].a.stream_id, members[0].b.stream_id, profile)
        strategy = own.get(family_id, objective.strategy)
        old = before.get(family_id)
        asked = asked_replication(
            objective.partitioning, family, rates, choose=old is None or family_id not in keep
        )
        sides = (members[0].a.stream_id, members[0].b.stream_id)
        promised = any(streams[i].has_contract for i in sides if i in streams)
        if not is_theta(family_id) and not family.spreads and promised:
            # If a key spread to more buckets later, the new buckets would not know that the key is closed.
            asked = HASHED
        hands_on = any(q.hands_on for q in members)
        if is_theta(family_id) and members[0].left is not None:
            # Pairs of the previous step can be in any bucket, so the rows that they join are stored in all
            # buckets.
            asked = Replication(ALL_BUCKETS)
        elif members[0].ordered and may_sort(objective, old):
            # Rows that wait for their place in the order stay in one bucket, so their key must not spread.
            asked = HASHED
        elif (
            (members[0].counts_rows and not is_theta(family_id))
            or (hands_on and not is_theta(family_id))
            or any(map(is_exchanged, sides))
            or members[0].right is not None
        ):
            # Windows of rows: all rows of a key are counted in one bucket, and wait there for their ranks
            # (their row numbers). Several steps: if a key spread to a new bucket, pairs made there would not
            # meet the rows stored for the next step. Exchanged pairs would not reach the new bucket.
            asked = HASHED
        policy = policies.get(family_id, PunctuationPolicy())
        replication = replications.get(family_id, HASHED).grown(asked)
        # Pairs become rows of the next step in the bucket that made them, so both steps use the same buckets.
        if not is_theta(family_id):
            replication = spread.get(members[0].a.stream_id, replication)
        if hands_on:
            made = intermediate_id(*sides, members[0].key, members[0].clocks)
            spread[made] = replication
            for each in (made, exchanged_id(made)):
                profile = with_handed(profile, family, each, rates)
        if (
            old is not None
            and family_id in keep
            and (old.queries, old.strategy) == (family.queries, strategy)
        ):
            asked_here = own_probes.get(family_id, objective.probe)
            probe = (
                old.probe
                if asked_here == "auto"
                else _probe(old, asked_here, own_probes, rates, calibration, again)
            )
            chosen_memory = choose_memory(old, objective, rates)
            memory = old.memory if objective.chooses_memory else chosen_memory
            changed = replace(
                old,
                replication=replication,
                probe=probe,
                memory=memory,
                punctuations=policy,
                purge_prices=purge_prices(probe, calibration) if promised else PurgePrices(),
                rests=family_id not in unrested,
            )
            planned.append(old if changed == old else changed)
            continue
        chosen = STRATEGIES[strategy](family, rates, model)
        band, band_share = None, None
        if is_theta(family_id):
            bands = candidate_bands((q.residual for q in members), _types(members, streams))
            shares = {b.band: b.share.value for b in profile.bands if b.family == family_id}
            former = None if old is None else old.band
            band = leading_band(bands, shares, former, choose=family_id not in keep)
            known = None if old is None or old.band != band else old.band_share
            band_share = None if band is None else shares.get(band, known)
        joins = _kept(family, chosen, objective.pinned.get(family_id), left.get(family_id, Boundaries()))
        built = _family_plan(family, members[0], strategy, joins, replication, band, given=joins != chosen)
        asked_here = own_probes.get(family_id, objective.probe)
        probe = _probe(built, asked_here, own_probes, rates, calibration, again)
        memory = choose_memory(built, objective, rates)
        prices = purge_prices(probe, calibration) if promised else PurgePrices()
        planned.append(
            replace(
                built,
                probe=probe,
                memory=memory,
                punctuations=policy,
                purge_prices=prices,
                rests=family_id not in unrested,
                band_share=band_share,
            )
        )

    refuse_spread_pairs(planned)
    flowing, present = _streams(queries, streams, previous), {f.id for f in planned}
    plan = Plan(
        version=version,
        strategy=objective.strategy,
        streams=flowing,
        families=tuple(sorted(planned, key=lambda f: f.id)),
        next_bit=kept_counts(next_bit, present),
        departed=departed_replications(replications, present, flowing),
    )
    check_plan(plan, previous)
    return plan


def _family(
    family_id: str,
    members: Sequence[Query],
    old: FamilyPlan | None,
    next_bit: dict[str, int],
    since: Mapping[int, int],
    version: int,
) -> Family:
    """Return a family whose queries have lineage bits and activations; new bits advance ``next_bit``."""
    filters_a = _filters([q.a for q in members], old.filters_a if old else (), f"{family_id}/a", next_bit)
    filters_b = _filters([q.b for q in members], old.filters_b if old else (), f"{family_id}/b", next_bit)
    bits_a = {f.sql: f.bit for f in filters_a}
    bits_b = {f.sql: f.bit for f in filters_b}
    former = {q.id: q for q in old.queries} if old else {}
    planned = []
    for q in members:
        filter_a = None if q.a.filter is None else bits_a[q.a.filter]
        filter_b = None if q.b.filter is None else bits_b[q.b.filter]
        was = former.get(q.id)
        if was is not None and (was.filter_a, was.filter_b) == (filter_a, filter_b) and _is_whole(was):
            planned.append(was)  # a query never changes under its id, and most queries are in the old plan
            continue
        planned.append(planned_query(q, filter_a, filter_b, since.get(q.id, version)))
    return Family(family_id, tuple(planned), filters_a, filters_b)


def _probe(
    family: FamilyPlan,
    asked: AskedProbe,
    own: Mapping[str, AskedProbe],
    rates: FamilyRates,
    calibration: Calibration,
    again: Collection[str],
) -> Probe:
    """Return how a family's slices are searched; ``again`` has the families whose pairs are recomputed.

    Raises:
        InvalidProbe: Rings are requested explicitly for this family, but its slices cannot have rings.
    """
    if asked == "auto":
        return Probe() if family.id in again else choose_probe(family, rates, calibration)
    if asked.has_rings and (family.id in again or not may_have_rings(family)):
        if family.id not in own:
            return Probe()
        raise InvalidProbe(
            f'the slices of family "{family.id}" cannot be searched by {probe_text(asked)}',
            detail="Only inner joins with a key can have rings, and not over windows of rows. If a next "
            "step joins their pairs, it has to store these pairs.",
            hint="Request merge for this family, or leave the family out.",
        )
    return asked


def _is_whole(query: PlannedQuery) -> bool:
    """Return whether a planned query has all properties; queries that older releases planned lack some."""
    return all(output.columns is not None for output in query.outputs)


def _kept(
    family: Family, chosen: tuple[JoinPlan, ...], pinned: Boundaries | None, left: Boundaries
) -> tuple[JoinPlan, ...]:
    """Return the pinned chain, or else the chosen joins with the boundaries of departed queries."""
    if pinned is not None:
        return pinned_chain(family, pinned, left)
    return with_retained(family, chosen, left) if left else chosen


def _filters(
    sides: Iterable[Side], old: Sequence[PlannedFilter], scope: str, next_bit: dict[str, int]
) -> tuple[PlannedFilter, ...]:
    """Assign lineage bits to the filters of one side of a family; new bits advance ``next_bit[scope]``."""
    wanted = {s.filter: tuple(sorted(s.filter_columns)) for s in sides if s.filter is not None}
    filters, next_bit[scope] = assign_bits(wanted, old, first_bit(next_bit, scope))
    return filters


def _family_plan(
    family: Family,
    member: Query,
    strategy: Strategy,
    joins: tuple[JoinPlan, ...],
    replication: Replication,
    band: Band | None,
    *,
    given: bool,
) -> FamilyPlan:
    return FamilyPlan(
        id=family.id,
        stream_a=member.a.stream_id,
        stream_b=member.b.stream_id,
        key=member.key,
        key_types=member.key_types,
        columns_a=tuple(sorted({c for q in family.queries for c in q.columns_a})),
        columns_b=tuple(sorted({c for q in family.queries for c in q.columns_b})),
        filters_a=family.filters_a,
        filters_b=family.filters_b,
        queries=family.queries,
        strategy=strategy,
        joins=joins,
        given=given,
        replication=replication,
        result_columns_a=result_columns(family.queries, "a"),
        result_columns_b=result_columns(family.queries, "b"),
        band=band,
        clock_a=member.a.clock,
        clock_b=member.b.clock,
    )


def chooses_band(
    queries: Sequence[Query],
    streams: Mapping[int, Stream],
    previous: Plan | None,
    replanned: Collection[str] = (),
) -> bool:
    """Return whether statistics are needed to choose the band of some family (``families.bands``).

    Args:
        queries: All queries.
        streams: Streams by id.
        previous: Plan version in force until now, or None for the first plan.
        replanned: Ids of families that are planned again.
    """
    settled = set() if previous is None else {f.id for f in previous.families} - set(replanned)
    # All other queries have a key, so their families need no band. There may be ten thousand such queries.
    keyless = families(q for q in queries if not q.key or q.left is not None)
    return any(
        len(candidate_bands((q.residual for q in members), _types(members, streams))) > 1
        for name, members in keyless.items()
        if is_theta(name) and name not in settled and members[0].left is None
    )


def _types(members: Sequence[Query], streams: Mapping[int, Stream]) -> Types:
    return {
        side: {column.name: column.type for column in stream.columns}
        for side, stream in zip(SIDES, widest_sides(members, streams.__getitem__), strict=True)
    }


def _streams(
    queries: Sequence[Query], streams: Mapping[int, Stream], previous: Plan | None
) -> tuple[Stream, ...]:
    """Return the streams of all plan versions up to this one; a stream keeps its first definition."""
    used = {} if previous is None else {s.id: s for s in previous.streams}
    for query in queries:
        for side in stream_sides(query):
            if side.stream_id not in used:
                if side.stream_id not in streams:
                    raise InvalidPlan(f'query "{query.name}" uses unknown stream {side.stream_id}')
                used[side.stream_id] = streams[side.stream_id]
    return tuple(used[i] for i in sorted(used))
