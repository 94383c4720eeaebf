"""Views of stored segments, made from stored values as their names prescribe (``encoding.view_names``)."""

from __future__ import annotations

from collections.abc import Callable

from operators.segments.encoding.patch import Patch
from operators.segments.encoding.view_names import (
    CUT,
    KEPT,
    cut_bounds,
    part_of,
    patched_name,
    steps,
    stored_id,
)
from operators.segments.segment import Segment


def opened(
    segment_id: str, segment_of: Callable[[str], Segment], patch_of: Callable[[str], Patch]
) -> Segment:
    """Return the stored segment or the view that has a name.

    Args:
        segment_id: Name of a stored segment or of a view.
        segment_of: Returns a segment by its stored id.
        patch_of: Returns a patch by its stored id.

    Raises:
        CorruptSegment: A stored value cannot be read, or does not match the name.
    """
    segment = segment_of(stored_id(segment_id))
    for kind, facts in steps(segment_id):
        if kind == CUT:
            segment = segment.cut(*cut_bounds(facts))
            continue
        patch_id, number = part_of(segment_id, facts)
        patch = patch_of(patch_id)
        if kind == KEPT:
            name = patched_name(segment.id, facts, None)
            made = segment.filter(patch.kept(number, len(segment)))
        else:
            name = patched_name(segment.id, None, facts)
            made = segment.with_lineage(*patch.lineage(number, len(segment)))
        segment = made.stored_as_view(name, (patch.id, patch.stored_bytes))
    return segment
