"""Finishing of keys in one batch: newly closed keys begin to wait, and finished keys become results.

    closings of the batch ── due times by rows and windows ── WaitingKeys ── finished keys ── result rows

A result punctuation states that no later result has a key. It is a row of the family's result file. It has no
event time, so it follows the results of its batch. Like a pair, it has a route, so it is stored once for all
its queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.columns.arrow_types import arrow_type
from catalog.sql_text import quoted
from catalog.values.query import UNBOUNDED_US
from catalog.values.routes.query_sets import QuerySets
from catalog.values.routes.route_table import RouteTable
from operators.closings.closing_rows import constants, ends, equal_numbers, key_columns, known
from operators.filters.expressions import select_table
from operators.finishing.waiting_keys import AT_ONCE_US
from operators.join.family_joins import FamilyJoins
from operators.join.pairs import RESULT_COLUMNS
from operators.kernels.keys import Codes, Int64s, bucket_of, exact_column, verify_equal
from operators.lineage.routes import RouteCounts, query_keys, route_numbers
from operators.segments.encoding.row_codec import KEY
from operators.segments.layout import SIDES

#: Maximum number of keys in a closed interval of which each key gets a result punctuation. In longer
#: intervals, only keys with rows or open groups get one.
_LISTED_KEYS = 10_000


def wait_for_keys(
    joins: FamilyJoins,
    arrived: Mapping[str, pa.RecordBatch | None],
    newest_us: Mapping[str, int | None],
    place: tuple[int, int],
) -> None:
    """Add the keys that a batch closes to the waiting keys; each key waits until it is finished.

    Call this after the batch's joins, and before the batch's closings are remembered.

    Args:
        joins: Joins of the family.
        arrived: Closings of the batch per side, or None for a side without closings.
        newest_us: Newest event time per side so far.
        place: Number of this bucket, and the number of buckets.
    """
    waiting = joins.waiting
    if waiting is None:
        return
    queries = joins.family.plan.queries
    every = joins.family.finishing
    entering = [number for number in every if queries[number].id in waiting.entering]
    waiting.entering = frozenset()
    for numbers in (entering, every):
        for side in SIDES:
            closed, other = joins.closed.get(side), joins.closed.get("b" if side == "a" else "a")
            closings = None if closed is None else arrived[side]
            if closed is not None and numbers is entering:
                closings = closed.all_remembered() if entering else None
            if closed is None or closings is None:
                continue
            closings = _single(joins, closings, place)
            if numbers is every:
                closings = closings.filter(pa.array(~closed.remembers(closings)))
            if not closings.num_rows:
                continue
            before = np.zeros(closings.num_rows, dtype=np.bool_)
            if other is not None and numbers is every:
                before = other.remembers(closings)
            due_us = _due_us(joins, side, closings, numbers, newest_us[side], place[1])
            ids = np.array([queries[number].id for number in numbers], dtype=np.int64)
            waiting.add(side, closings, due_us, ids, before)


def result_punctuations(
    joins: FamilyJoins, finished: pa.Table, plan_version: int, batch: int
) -> tuple[pa.RecordBatch, RouteCounts]:
    """Return finished keys as rows of a result file, and their routes.

    Args:
        joins: Joins of the family.
        finished: Result of ``WaitingKeys.finish``.
        plan_version: Plan version in force.
        batch: Batch number.
    """
    family, layouts = joins.family.plan, joins.family.layouts
    rows = finished.num_rows
    if layouts["a"].exact:
        column = exact_column(finished.column(KEY).to_numpy(), family.key_types[0])
        finished = finished.append_column("0", column)
    values = {
        f"{side}_{name}": f'TRY_CAST("{n}" AS {layouts[side].types[name]})'
        for side in SIDES
        for n, name in enumerate(layouts[side].key)
    }
    sides: tuple[Literal["a", "b"], ...] = ("a", "b")
    names = [quoted(str(n)) for n in range(len(family.key))]
    columns = [f"{text} AS {quoted(name)}" for name, text in values.items()]
    # Two keys may have the same number, but each result of a query must have a unique place in their order.
    # So such keys are numbered.
    apart = f"row_number() OVER (PARTITION BY _key ORDER BY {', '.join(names)}) - 1 AS _pos_b"
    order = ", ".join(["_key", *names])
    text = f"SELECT _key AS _pos_a, {apart}, queries, {', '.join(columns)} FROM finished ORDER BY {order}"
    found = select_table({"finished": finished}, text)
    members = pc.dictionary_encode(found.column("queries")).combine_chunks()
    place = {query.id: number for number, query in enumerate(family.queries)}
    sets = [
        sum(1 << place[int(query_id)] for query_id in text.split(","))
        for text in members.dictionary.to_pylist()
    ]
    codes: Int64s = members.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    ids = tuple(place)
    members_of = QuerySets.of(ids, sets)
    numbers = route_numbers(members_of, query_keys(ids))
    carried = [
        (f"{side}_{name}", arrow_type(layouts[side].types[name]))
        for side in sides
        for name in family.carried(side)
    ]
    arrays = [
        pa.array(numbers[codes]),
        pa.array(np.full(rows, plan_version, dtype=np.int32)),
        pa.array(np.full(rows, batch, dtype=np.int64)),
        pa.nulls(rows, pa.timestamp("us")),
        found.column("_pos_a").combine_chunks(),
        found.column("_pos_b").combine_chunks(),
    ]
    arrays += [
        found.column(name).combine_chunks().cast(kind) if name in values else pa.nulls(rows, kind)
        for name, kind in carried
    ]
    table = pa.table(arrays, names=[*RESULT_COLUMNS, *(name for name, _ in carried)])
    order_of = np.argsort(numbers)
    counts = np.bincount(codes, minlength=len(sets))
    routes = RouteTable(numbers[order_of], members_of.take(order_of))
    return table.combine_chunks().to_batches()[0], RouteCounts.of(routes, counts[order_of])


def _single(joins: FamilyJoins, closings: pa.RecordBatch, place: tuple[int, int]) -> pa.RecordBatch:
    """Return the closings of keys that are counted in this bucket; split intervals into single keys.

    Of a long interval (``_LISTED_KEYS``), return only the keys that have rows or open groups.
    """
    key, to = closings.column(KEY).to_numpy(), ends(closings)
    wide = key != to
    if not wide.any():
        if not joins.family.fragments.replicates:
            return closings
        return closings.filter(pa.array(bucket_of(key, place[1]) == place[0]))
    parts = [key[~wide]]
    with np.errstate(over="ignore"):
        length = (to - key).view(np.uint64)
    short = wide & (length < _LISTED_KEYS)
    lengths = length[short].astype(np.int64) + 1
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    parts.append(np.repeat(key[short], lengths) + within)
    if (wide & ~short).any():
        segments = list(joins.segments())
        if joins.groups is not None:
            segments += joins.groups.segments
        held = np.unique(np.concatenate([key[:0], *(segment.key for segment in segments)]))
        long = closings.filter(pa.array(wide & ~short))
        parts.append(held[known(constants(held), long, joins.family.plan.key_types)])
    keys = np.unique(np.concatenate(parts))
    return constants(keys[bucket_of(keys, place[1]) == place[0]])


def raise_to_newest(
    newest: np.ndarray[tuple[int, int], np.dtype[np.int64]], places: tuple[Int64s, Codes], ts: Int64s
) -> None:
    """Raise the entry of ``newest`` at the place of each row to the row's event time if that is later."""
    np.maximum.at(newest, places, ts)


def _due_us(
    joins: FamilyJoins,
    side: str,
    closings: pa.RecordBatch,
    numbers: Sequence[int],
    newest_us: int | None,
    buckets: int,
) -> Int64s:
    """Return the other side's watermark at which each key is finished for each query, int64[n, q].

    A key is finished for a query once the other side's watermark has passed the window of the key's newest
    row; until then the state has this row under every strategy. If several buckets share a key, some of its
    rows are in other buckets, so the newest event time of the stream is used instead of the newest row's.

    Args:
        joins: Joins of the family.
        side: Side that has closed the keys.
        closings: The n closed keys, sorted by key.
        numbers: Numbers of the queries.
        newest_us: Newest event time of the side so far.
        buckets: Number of buckets.
    """
    layout, queries = joins.family.layouts[side], joins.family.plan.queries
    keys = closings.column(KEY).to_numpy()
    newest = np.full((len(keys), len(numbers)), AT_ONCE_US, dtype=np.int64)
    looked_at: set[int] = set()
    served: dict[tuple[int, ...], np.ndarray[tuple[int, int], np.dtype[np.bool_]]] = {}
    for _, of, _, state in joins.slices():
        for segment in state.segments if of == side else ():
            if id(segment) in looked_at:
                continue
            looked_at.add(id(segment))
            closing, row = equal_numbers(keys, segment.key)
            if len(row) and not layout.exact:
                left = [layout.read(segment, name, row) for name in layout.key]
                same = verify_equal(left, key_columns(closings, closing), layout.key_types)
                closing, row = closing[same], row[same]
            if not len(row):
                continue
            classes = joins.classes.of(side, segment)
            masks = classes.masks
            if masks not in served:
                served[masks] = np.array(
                    [[mask >> number & 1 for number in numbers] for mask in masks], dtype=bool
                )
            codes = np.zeros(len(row), dtype=np.int64)
            if classes.codes is not None:
                codes = classes.codes[row].astype(np.int64)
            latest = np.full((len(keys), len(masks)), AT_ONCE_US, dtype=np.int64)
            raise_to_newest(latest, (closing, codes), segment.ts[row])
            for code, serves in enumerate(served[masks]):
                newest[:, serves] = np.maximum(newest[:, serves], latest[:, code, None])
    if joins.family.fragments.replicates and newest_us is not None:
        newest[joins.family.fragments.of_rows(keys, buckets) > 1] = newest_us
    windows = [queries[number].w_a_us if side == "a" else queries[number].w_b_us for number in numbers]
    ends = newest + np.array([min(window_us, UNBOUNDED_US) for window_us in windows], dtype=np.int64)
    due: Int64s = np.where(newest == AT_ONCE_US, AT_ONCE_US, ends)
    return due
