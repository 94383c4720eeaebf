"""Families that recompute their input pairs instead of storing them (``catalog.steps``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.steps import intermediate_id, is_exchanged, is_intermediate, step_order, stream_sides
from catalog.values.plan import FamilyPlan, Replication
from catalog.values.query import Query
from catalog.values.stream import Stream


def unrested_families(
    grouped: Mapping[str, Sequence[Query]],
    before: Mapping[str, FamilyPlan],
    replications: Mapping[str, Replication],
    streams: Mapping[int, Stream],
) -> dict[str, str]:
    """Return each family whose side a is not stored, with the family that makes the rows of side a.

    As soon as one query of the family needs stored rows, they are stored for as long as the family has
    queries. The rows are also stored if rows of the previous step may be missing when pairs are recomputed.
    This may be so for rows of heavy keys, which several buckets share, for rows whose key a stream may close,
    and for rows in rings. The rows are also stored if the previous step has outer, semi or anti joins,
    because these joins may answer and remove a row while slower streams still need it.

    Args:
        grouped: Queries, as steps, by family id.
        before: Families of the plan in force by id.
        replications: Keys that several buckets share, by family id.
        streams: Streams by id.
    """
    firsts = {name: members[0] for name, members in grouped.items()}
    makers = {
        intermediate_id(q.a.stream_id, q.b.stream_id, q.key, q.clocks): name for name, q in firsts.items()
    }
    found: dict[str, str] = {}
    for name in step_order({n: (q.a.stream_id, q.b.stream_id, q.key, q.clocks) for n, q in firsts.items()}):
        first = firsts[name]
        pairs = is_intermediate(first.a.stream_id) and not is_intermediate(first.b.stream_id)
        if not pairs or is_exchanged(first.a.stream_id):
            continue
        rests = name in before and before[name].rests
        if rests or any(query.rests for query in grouped[name]):
            continue
        maker = makers[first.a.stream_id]
        below = [maker]
        while below[-1] in found:
            below.append(found[below[-1]])
        shared = any(replications.get(each, Replication()).replicates for each in below)
        in_rings = any(each in before and before[each].probe.has_rings for each in below)
        closing = any(
            streams[s.stream_id].has_contract for s in stream_sides(first) if s.stream_id in streams
        )
        judged = any(query.kind != "inner" for each in below for query in grouped[each])
        if not (shared or in_rings or closing or judged):
            found[name] = maker
    return found
