"""Merging of segments with the same columns into one run, sorted by (key, position).

1 3 8   filters 4 17        1 2 3 8 9   filters 4 17
2 9     filters 4 17   ->               (filters that no query needs any more are dropped)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from operators.segments.encoding.row_codec import KEY, POS
from operators.segments.segment import EPOCH, Segment


def concat(segments: Iterable[Segment], live: Collection[int] | None = None) -> Segment:
    """Merge segments that are ``mergeable`` into one, sorted by (key, position).

    Args:
        segments: At least one segment.
        live: Lineage bits that a query may still need; other bits may be dropped. None keeps all bits.
    """
    parts = list(segments)
    if len(parts) == 1:
        return parts[0]
    filters = parts[0].filters
    if any(part.filters != filters for part in parts):
        filters = tuple(bit for bit in filters if live is None or bit in live)
        parts = [part.placed(filters) for part in parts]
    epochs = {part.epoch for part in parts}
    epoch = epochs.pop() if len(epochs) == 1 else None
    batches = [part.rows if epoch is not None else _with_epochs(part) for part in parts]
    names = batches[0].schema.names
    rows = pa.concat_batches([batch.select(names) for batch in batches])
    key, pos = rows.column(KEY).to_numpy(), rows.column(POS).to_numpy()
    # If positions ascend from part to part, a stable sort by key is enough. It is fast, because each part is
    # sorted, and numpy's stable sort merges sorted runs.
    order = np.argsort(key, kind="stable") if _follow_each_other(parts) else np.lexsort((pos, key))
    return Segment(rows.take(pa.array(order)), epoch, filters)


def concat_alike(segments: Sequence[Segment], live: Collection[int] | None = None) -> list[Segment]:
    """Merge the segments that are ``mergeable`` with the first segment; leave other segments separate.

    Args:
        segments: Any number of segments.
        live: Lineage bits that a query may still need; other bits may be dropped. None keeps all bits.
    """
    alike = [segment for segment in segments if mergeable(segments[0], segment, live)]
    chosen = set(map(id, alike))
    apart = [segment for segment in segments if id(segment) not in chosen]
    return [concat(alike, live), *apart] if alike else []


def _follow_each_other(parts: Sequence[Segment]) -> bool:
    """Return whether the parts follow each other in the source without overlap, as they usually do."""
    return all(int(one.pos.max()) < int(next_one.pos.min()) for one, next_one in pairwise(parts))


def mergeable(one: Segment, other: Segment, live: Collection[int] | None = None) -> bool:
    """Return whether two segments have the same columns and bits of the same filters (in ``live``)."""
    if one.columns != other.columns:
        return False
    if one.filters == other.filters:
        return True
    return not any(live is None or bit in live for bit in one.known_bits ^ other.known_bits)


def _with_epochs(segment: Segment) -> pa.RecordBatch:
    if segment.epoch is None:
        return segment.rows
    arrays = [*segment.rows.columns, pa.array(segment.epochs())]
    return pa.RecordBatch.from_arrays(arrays, names=[*segment.rows.schema.names, EPOCH])
