"""Row classes of segments, kept until the segment is dropped or the plan changes.

The class of a row is the set of queries that the row may serve. Classes depend on the family and the plan
version, not on the join. So a segment that several joins use is classified once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from operators.join.compiled_family import Admissible, CompiledFamily
from operators.lineage.lineage import RowClasses
from operators.segments.segment import Segment


@dataclass(slots=True, eq=False)
class SegmentClasses:
    """Classes of the segments of one family in one bucket.

    Attributes:
        family: The family under the plan version in force.
    """

    family: CompiledFamily
    # By the segment's ``id()``. The segment is kept with its classes, so that its ``id()`` is not reused.
    _known: dict[int, tuple[Segment, RowClasses]] = field(default_factory=dict)

    def of(self, side: str, segment: Segment) -> RowClasses:
        """Return the classes of a segment's rows."""
        known = self._known.get(id(segment))
        if known is None:
            layout = self.family.layouts[side]
            classes = self.family.lineages[side].classify(segment, layout.kept(segment))
            known = self._known[id(segment)] = (segment, classes)
        return known[1]

    def serving(
        self, side: str, segment: Segment, wanted: Admissible, *, after_us: int | None = None
    ) -> Segment | None:
        """Return the rows that ``wanted`` admits, or None if there are none.

        Args:
            side: Side of the rows.
            segment: The rows.
            wanted: Rule for the rows.
            after_us: Event time; only later rows are returned. None: rows of all times are returned.
        """
        classes = self.of(side, segment)
        keep = classes.serving(len(segment), wanted.one_of, wanted.none_of)
        if after_us is not None and segment.t_min <= after_us:
            young = segment.ts > after_us
            keep = young if keep is None else keep & young
        if keep is None:
            return segment
        if not keep.any():
            return None
        if keep.all():
            return segment
        kept = segment.filter(keep)
        self._known[id(kept)] = (kept, classes.select(keep))
        return kept

    def known(self, segment: Segment) -> RowClasses | None:
        """Return the classes of a segment, or None if they have not been set or computed."""
        known = self._known.get(id(segment))
        return None if known is None else known[1]

    def put(self, segment: Segment, classes: RowClasses) -> None:
        """Set the classes of a segment's rows."""
        self._known[id(segment)] = (segment, classes)

    def keep_only(self, segments: Iterable[Segment]) -> None:
        """Forget the classes of all segments that are not among the given segments."""
        self._known = {id(s): self._known[id(s)] for s in segments if id(s) in self._known}
