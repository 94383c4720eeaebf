"""Compiles a plan version and runs it on a synthetic row before it enters the control log.

A failure here is reported to the client that requested the change; applying a version in the running job
never raises.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from catalog.columns.arrow_types import arrow_type
from catalog.steps import plan_streams
from catalog.values.plan import FamilyPlan, Plan
from catalog.values.routes.route_table import RouteTable
from catalog.values.stream import Stream
from operators.bucket.bucket import Bucket
from operators.filters.expressions import evaluate_residuals
from operators.groups.compiled_groups import compile_groups
from operators.groups.open_groups import OpenGroups
from operators.pack.pack import packer
from operators.pack.pack_plan import pack_plan


@dataclass(slots=True)
class DryRun:
    """Tries versions, and keeps the bucket with the last version, usually the predecessor of the next one.

    Previews and changes may try versions concurrently, so only one of them at a time gets the kept bucket.
    """

    _last: Bucket | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, previous: Plan | None, plan: Plan) -> None:
        """Try a version; arguments and errors as for ``dry_run``."""
        with self._lock:
            bucket, self._last = self._last, None
        if bucket is None or bucket.plan is not previous:
            bucket = Bucket()
            if previous is not None:
                bucket.activate(previous)
        bucket.activate(plan)
        _evaluate(previous, plan)
        self._last = bucket


def dry_run(previous: Plan | None, plan: Plan) -> None:
    """Compile a plan, and evaluate once each expression that the previous plan did not have.

    Args:
        previous: Plan in force until now.
        plan: Next plan.

    Raises:
        Exception: Any error of compiling or evaluating the plan.
    """
    DryRun()(previous, plan)


def _evaluate(previous: Plan | None, plan: Plan) -> None:
    """Evaluate the expressions that the previous plan does not have."""
    # Expressions of the plan in force were tried before.
    tried = frozenset() if previous is None else _filters(previous)
    for stream in plan.streams:
        compiled = packer(pack_plan(plan, stream, 1))
        if any((stream.id, f.sql) not in tried for side in compiled.sides for f in side.filters):
            compiled.pack(_one_row(stream), 1, 0, None)
    answered = frozenset() if previous is None else _residuals(previous)
    streams = plan_streams(plan)
    grouped = _groupings(plan) - (frozenset() if previous is None else _groupings(previous))
    for family in plan.families:
        if any(name == family.id for name, _ in grouped):
            _group(family, streams)
        texts = sorted(text for name, text in _residuals(plan) - answered if name == family.id)
        if not texts:
            continue
        a, b = _one_row(streams[family.stream_a]), _one_row(streams[family.stream_b])
        evaluate_residuals(
            {name: a.column(name).combine_chunks() for name in family.columns_a},
            {name: b.column(name).combine_chunks() for name in family.columns_b},
            1,
            texts,
        )


def _group(family: FamilyPlan, streams: Mapping[int, Stream]) -> None:
    """Add a synthetic pair to a group, and close the group."""
    compiled = compile_groups(family)
    if compiled is None:
        return
    one = pa.array([0], pa.int64())
    columns = {"_route": one, "_event_time": one.cast(pa.timestamp("us")), "_pos_a": one}
    for side, stream_id in (("a", family.stream_a), ("b", family.stream_b)):
        kinds = {column.name: column.type for column in streams[stream_id].columns}
        for name in compiled.carried_a if side == "a" else compiled.carried_b:
            columns[f"{side}_{name}"] = pa.nulls(1, arrow_type(kinds[name]))
    groups = OpenGroups(compiled)
    groups.add(pa.table(columns).to_batches()[0], RouteTable.of({0: list(compiled.queries)}))
    groups.leave(compiled.queries)


def _groupings(plan: Plan) -> frozenset[tuple[str, int]]:
    """Return the family id and query id of every query of a plan with GROUP BY."""
    return frozenset((f.id, q.id) for f in plan.families for q in f.queries if q.grouping is not None)


def _filters(plan: Plan) -> frozenset[tuple[int, str]]:
    """Return stream id and text of the filters of a plan."""
    sides = [((f.stream_a, f.filters_a), (f.stream_b, f.filters_b)) for f in plan.families]
    return frozenset((stream, f.sql) for both in sides for stream, filters in both for f in filters)


def _residuals(plan: Plan) -> frozenset[tuple[str, str]]:
    """Return family id and text of the residual predicates of a plan."""
    return frozenset((f.id, q.residual) for f in plan.families for q in f.queries if q.residual)


def _one_row(stream: Stream) -> pa.Table:
    """Return a row with NULL in every column except the event time."""
    columns = {column.name: pa.nulls(1, arrow_type(column.type)) for column in stream.columns}
    columns[stream.event_time] = pa.array([0], pa.timestamp("us"))
    return pa.table(columns | {"_pos": pa.array([0], pa.int64())})
