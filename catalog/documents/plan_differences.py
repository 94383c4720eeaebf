"""Plan versions stored as differences from the previous version.

    version 7    10,000 queries, 2,000 slices a side      stored whole: 5 MB
    version 8    + q10001, - q17, 1 slice                 stored as its difference to version 7: 1 kB

A difference identifies queries and joins by id, filters by lineage bit, and slices by start. All other parts
of a changed family, such as its columns, are small and stored whole. Invariant: ``applied(old,
difference(old, new))`` is ``new``, and shares every unchanged query, filter and join with ``old``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from catalog.errors import InvariantBroken
from catalog.values.control import ControlRecord, Heartbeat, Horizon, Promises, Pull
from catalog.values.plan import FamilyPlan, JoinPlan, Plan, PlannedFilter, PlannedQuery, Slice

T = TypeVar("T")
K = TypeVar("K", int, str)


@dataclass(frozen=True, slots=True)
class JoinDifference:
    """A join that was added or changed.

    Attributes:
        join: The new join without its slices. Its queries are left out, too, if it serves all queries of the
            family.
        serves_all: Whether the join serves all queries of the family.
        gone_a: Starts of the removed slices of side a, µs.
        gone_b: Starts of the removed slices of side b, µs.
        slices_a: Added or changed slices of side a.
        slices_b: Added or changed slices of side b.
    """

    join: JoinPlan
    serves_all: bool
    gone_a: tuple[int, ...]
    gone_b: tuple[int, ...]
    slices_a: tuple[Slice, ...]
    slices_b: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class FamilyDifference:
    """A family that was added or changed.

    Attributes:
        family: The family without queries, filters and joins.
        gone: Ids of the removed queries.
        queries: Added or changed queries.
        gone_a: Lineage bits of the removed filters of side a.
        gone_b: Lineage bits of the removed filters of side b.
        filters_a: Added or changed filters of side a.
        filters_b: Added or changed filters of side b.
        gone_joins: Ids of the removed joins.
        joins: Added or changed joins.
    """

    family: FamilyPlan
    gone: tuple[int, ...]
    queries: tuple[PlannedQuery, ...]
    gone_a: tuple[int, ...]
    gone_b: tuple[int, ...]
    filters_a: tuple[PlannedFilter, ...]
    filters_b: tuple[PlannedFilter, ...]
    gone_joins: tuple[str, ...]
    joins: tuple[JoinDifference, ...]


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """Difference between two plans.

    Attributes:
        base: Version of the old plan.
        plan: The new plan without families.
        gone: Ids of the removed families.
        families: Added or changed families.
    """

    base: int
    plan: Plan
    gone: tuple[str, ...]
    families: tuple[FamilyDifference, ...]


@dataclass(frozen=True, slots=True)
class BucketRecord:
    """Entry of the control log as it is sent to the buckets, which already know the previous plan.

    Attributes:
        seq: Position in the log.
        plan: The plan version that takes effect, stored whole.
        change: The plan version that takes effect, as its difference from the previous version.
        heartbeat: A heartbeat of an idle stream.
        promises: Punctuations of a stream.
        pull: A request for result punctuations.
        horizon: A new horizon of a stream.

    Exactly one of the six fields after ``seq`` is set; the other five are None.
    """

    seq: int
    plan: Plan | None = None
    change: PlanDifference | None = None
    heartbeat: Heartbeat | None = None
    promises: Promises | None = None
    pull: Pull | None = None
    horizon: Horizon | None = None


def bucket_records(before: Plan | None, records: Iterable[ControlRecord]) -> tuple[BucketRecord, ...]:
    """Return entries of the control log in the form in which buckets receive them.

    Args:
        before: Plan in force before the first entry, or None if there was no plan yet.
        records: The entries, in order.
    """
    given = []
    for record in records:
        if record.plan is None or before is None:
            given.append(
                BucketRecord(
                    record.seq,
                    record.plan,
                    heartbeat=record.heartbeat,
                    promises=record.promises,
                    pull=record.pull,
                    horizon=record.horizon,
                )
            )
        else:
            given.append(BucketRecord(record.seq, change=difference(before, record.plan)))
        before = record.plan or before
    return tuple(given)


def difference(old: Plan, new: Plan) -> PlanDifference:
    """Return the difference that turns one plan into another.

    Args:
        old: The former plan.
        new: The plan that follows.
    """
    gone, came = _compared(old.families, new.families, lambda family: family.id)
    former = {family.id: family for family in old.families}
    families = tuple(_family_difference(former.get(family.id), family) for family in came)
    return PlanDifference(old.version, replace(new, families=()), gone, families)


def applied(old: Plan | None, change: PlanDifference) -> Plan:
    """Return the plan that results from applying a difference to the old plan.

    Args:
        old: The plan to which the difference is applied; None, which is refused, if there is no such plan.
        change: The difference.

    Raises:
        InvariantBroken: ``old`` is not the plan version that the difference starts from.
    """
    if old is None or old.version != change.base:
        raise InvariantBroken(
            f"plan version {change.plan.version} can only be restored from version {change.base}",
            detail="There is no plan." if old is None else f"The given plan has version {old.version}.",
        )
    former = {family.id: family for family in old.families}
    came = [_applied_family(former.get(each.family.id), each) for each in change.families]
    families = _updated(old.families, change.gone, came, lambda family: family.id)
    return replace(change.plan, families=families)


def _family_difference(old: FamilyPlan | None, new: FamilyPlan) -> FamilyDifference:
    old = _bare(new) if old is None else old
    gone, queries = _compared(old.queries, new.queries, lambda query: query.id, _told_query)
    gone_a, filters_a = _compared(old.filters_a, new.filters_a, _bit, _told)
    gone_b, filters_b = _compared(old.filters_b, new.filters_b, _bit, _told)
    gone_joins, joins = _compared(old.joins, new.joins, lambda join: join.id)
    former = {join.id: join for join in old.joins}
    return FamilyDifference(
        family=_bare(new),
        gone=gone,
        queries=queries,
        gone_a=gone_a,
        gone_b=gone_b,
        filters_a=filters_a,
        filters_b=filters_b,
        gone_joins=gone_joins,
        joins=tuple(_join_difference(former.get(join.id), join, new) for join in joins),
    )


def _applied_family(old: FamilyPlan | None, change: FamilyDifference) -> FamilyPlan:
    old = change.family if old is None else old
    queries = _updated(old.queries, change.gone, change.queries, lambda query: query.id)
    ids = tuple(query.id for query in queries)
    former = {join.id: join for join in old.joins}
    joins = [_applied_join(former.get(each.join.id), each, ids) for each in change.joins]
    return replace(
        change.family,
        queries=queries,
        filters_a=_updated(old.filters_a, change.gone_a, change.filters_a, _bit),
        filters_b=_updated(old.filters_b, change.gone_b, change.filters_b, _bit),
        joins=_updated(old.joins, change.gone_joins, joins, lambda join: join.id),
    )


def _join_difference(old: JoinPlan | None, new: JoinPlan, family: FamilyPlan) -> JoinDifference:
    gone_a, slices_a = _compared(() if old is None else old.chain_a, new.chain_a, _start)
    gone_b, slices_b = _compared(() if old is None else old.chain_b, new.chain_b, _start)
    serves_all = new.queries == tuple(query.id for query in family.queries)
    bare = replace(new, queries=() if serves_all else new.queries, chain_a=(), chain_b=())
    return JoinDifference(bare, serves_all, gone_a, gone_b, slices_a, slices_b)


def _applied_join(old: JoinPlan | None, change: JoinDifference, everyone: tuple[int, ...]) -> JoinPlan:
    return replace(
        change.join,
        queries=everyone if change.serves_all else change.join.queries,
        chain_a=_updated(() if old is None else old.chain_a, change.gone_a, change.slices_a, _start),
        chain_b=_updated(() if old is None else old.chain_b, change.gone_b, change.slices_b, _start),
    )


def _bare(family: FamilyPlan) -> FamilyPlan:
    return replace(family, queries=(), filters_a=(), filters_b=(), joins=())


def _bit(planned: PlannedFilter) -> int:
    return planned.bit


def _told(planned: PlannedFilter) -> object:
    """Return a filter and its threshold, because ``==`` between filters ignores the threshold."""
    return planned, planned.threshold


def _told_query(query: PlannedQuery) -> object:
    """Return a query and the columns of its outputs, because ``==`` between outputs ignores the columns."""
    return query, tuple(output.columns for output in query.outputs)


def _start(piece: Slice) -> int:
    return piece.w_start_us


def _same(value: T) -> object:
    return value


def _compared(
    old: Sequence[T], new: Sequence[T], key: Callable[[T], K], told: Callable[[T], object] = _same
) -> tuple[tuple[K, ...], tuple[T, ...]]:
    """Return the keys of entries that ``new`` lacks, and the added or changed entries of ``new`` in order."""
    former = {key(each): each for each in old}
    kept = {key(each) for each in new}
    came = tuple(
        each
        for each in new
        if (was := former.get(key(each))) is not each and (was is None or told(was) != told(each))
    )
    return tuple(k for k in former if k not in kept), came


def _updated(old: Iterable[T], gone: Iterable[K], came: Iterable[T], key: Callable[[T], K]) -> tuple[T, ...]:
    """Return ``old`` with the removals, additions and changes applied, ascending by key."""
    values = {key(each): each for each in old}
    for k in gone:
        del values[k]
    added = {key(each): each for each in came}
    if added.keys() <= values.keys():
        values |= added  # no key is new, so the keys are still ascending
        return tuple(values.values())
    values |= added
    return tuple(values[k] for k in sorted(values))
