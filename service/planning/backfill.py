"""Limits of ``backfill: state``: columns that earlier rows lack.

A row is stored with the columns that the queries of its family needed when it was processed. The lifetimes of
the family's queries determine these columns, without any plan:

    version   1    2    3    4    5    6       v is stored since version 3. A query that needs v and is
    q1 (k)    |-------------------|            added with version 5 lacks v in rows of versions 1 and 2,
    q2 (v)              |----------------->    as long as its window reaches them

Rows that the new query's window no longer reaches do not matter. If the family had no query for a time, rows
from before that time do not matter either, because the state was dropped then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from catalog.steps import steps
from catalog.store.store import Store
from catalog.values.batch import BatchProgress
from catalog.values.plan import FamilyPlan, Plan
from catalog.values.query import ALL_ROWS, Query, QueryRecord, Side
from planner.families.families import SIDES, family_of

#: End version of a query that has not ended.
_OPEN = 2**62


@dataclass(frozen=True, slots=True)
class _Life:
    """Plan versions [added, removed) with a query, and the columns of one side that the query reads."""

    added: int
    removed: int
    columns: frozenset[str]


def missing_columns(store: Store, query: Query, previous: Plan | None) -> tuple[str, ...]:
    """Return the columns that earlier rows lack for a query that enters with the next plan version.

    Args:
        store: The catalog.
        query: The bound query.
        previous: The newest plan version so far.

    Returns:
        Columns as ``alias.column``, or only ``ALL_ROWS`` if the query joins no earlier row at all.
    """
    wanted = family_of(query)
    families = () if previous is None else previous.families
    family = next((f for f in families if f.id == wanted), None)
    if query.backfill == "none" or previous is None or family is None:
        return (ALL_ROWS,)
    if query.kind != "inner":
        # An outer, semi or anti join would have to know whether a held row already had a partner under its
        # conditions. That is unknown, and some rows have left the state after a match.
        return (ALL_ROWS,)
    missing: list[str] = []
    for side, other in zip(SIDES, reversed(SIDES), strict=True):
        mine, opposite = (query.a if name == "a" else query.b for name in (side, other))
        needed = set(mine.columns) - _always_kept(store, family, side)
        # Manifests do not record the progress of an order, so all rows may be in reach.
        timed = needed and not query.ordered
        horizon = first_version_in_reach(store, mine, opposite.stream_id) if timed else 0
        over = store.queries.over(family.stream_a, family.stream_b, horizon)
        # A join of many streams is stored under the two streams of its first step, which may differ from the
        # streams of this family.
        others = {q.id for q in family.queries if q.hands_on} - {record.query.id for record in over}
        lives = _lives([*over, *store.queries.by_ids(others)], family, side)
        begun = max(_covered_since(lives, previous.version), horizon)
        for column in sorted(needed):
            kept = _covered_since((life for life in lives if column in life.columns), previous.version)
            if kept > begun:
                missing.append(f"{mine.alias}.{column}")
    return tuple(missing)


def _always_kept(store: Store, family: FamilyPlan, side: str) -> set[str]:
    """Return the columns that are stored with every row of a family, whichever columns its queries read."""
    # Imported only with the first such query, so that the API can answer without loading numba and pandas
    # (``engine.engine``).
    from operators.segments.layout import side_layout

    layout = side_layout(
        family, side, store.streams.by_id(family.stream_a if side == "a" else family.stream_b)
    )
    kept = {layout.event_time}
    if layout.derived_key is not None:
        kept.add(layout.derived_key)
    if not layout.exact:
        kept |= set(layout.key)
    return kept


def _lives(records: Iterable[QueryRecord], family: FamilyPlan, side: str) -> list[_Life]:
    return [
        _Life(
            record.added_version,
            _OPEN if record.removed_version is None else record.removed_version,
            frozenset(step.a.columns if side == "a" else step.b.columns),
        )
        for record in records
        for step in steps(record.query)
        # For a query that needs only one match, a row leaves after the match, so other queries cannot rely on
        # the rows of this query.
        if family_of(step) == family.id and not step.needs_one_match(side)
    ]


def _covered_since(lives: Iterable[_Life], version: int) -> int:
    """Return the first version since which some query has existed in every version up to ``version``.

    If no query exists in ``version``, the result is ``version + 1``.

    >>> nothing = frozenset()
    >>> _covered_since([_Life(1, 3, nothing), _Life(2, 5, nothing), _Life(7, 9, nothing)], 4)
    1
    >>> _covered_since([_Life(7, 9, nothing)], 4)
    5
    """
    spans = [(life.added, life.removed) for life in lives]
    since = version + 1
    while (earlier := min((a for a, r in spans if a < since <= r), default=since)) < since:
        since = earlier
    return since


def first_version_in_reach(store: Store, side: Side, opposite_id: int) -> int:
    """Return the plan version of the oldest batch with rows of a side that a window may still reach.

    A row with event time T is out of reach of a window W once the watermark of the opposite stream has passed
    T + W. The newest event time never falls, so the batch is found by bisection. The search goes back from
    the newest batch, since most windows reach few batches.
    """
    last = store.batches.last_progress()
    now_us = None if last is None else _event_time(last, opposite_id, newest=False)
    if last is None or now_us is None:
        return 0

    def reached(batch: int) -> BatchProgress | None:
        """Return a batch's progress, or None if the window reaches none of the rows up to this batch."""
        # If a batch's manifest is not kept, the next existing manifest is used (``catalog.store``).
        found = store.batches.progress(batch) if batch >= 0 else None
        newest_us = None if found is None else _event_time(found, side.stream_id, newest=True)
        # A batch before the stream's first row has no rows.
        return None if newest_us is None or newest_us + side.window_us <= now_us else found

    at, oldest = last.batch, reached(last.batch)
    if oldest is None:
        return _OPEN
    step = 1
    while (found := reached(at - step)) is not None:
        at, oldest, step = at - step, found, step * 2
    while step > 1:
        step //= 2
        if (found := reached(at - step)) is not None:
            at, oldest = at - step, found
    return oldest.plan_version


def _event_time(progress: BatchProgress, stream_id: int, *, newest: bool) -> int | None:
    """Return the newest event time of a stream after a batch, or its watermark."""
    for stream in progress.streams:
        if stream.stream_id == stream_id:
            return stream.max_event_time_us if newest else stream.watermark_us
    return None
