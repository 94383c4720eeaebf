"""Names of views: segments that are parts of stored values, and so take no bytes of their own.

    c.7.3.0                            a stored segment: checkpoint, bucket, batch, serial number
    c.7.3.0@100:200                    rows of this segment with 100 <= T < 200
    c.7.3.0@100:200&9.4:12             of these, the rows that part 12 of the patch c.7.9.4 keeps
    c.7.3.0@100:200&9.4:12=9.4:0       these rows with the lineage that part 0 of the patch gives them

Steps are applied from left to right. Consecutive cuts are merged into one, and new lineage replaces earlier
lineage. So only selections make a name longer, and their number is bounded (``bucket.state``). A patch
(``encoding.patch``) is stored in the same bucket as the segment to which it applies, so its name in a step
omits the common prefix.
"""

from __future__ import annotations

import re

CUT, KEPT, LINEAGE = "@", "&", "="

_STEP = re.compile(f"([{CUT}{KEPT}{LINEAGE}])([^{CUT}{KEPT}{LINEAGE}]+)")


def steps(segment_id: str) -> list[tuple[str, str]]:
    """Return the steps from the stored segment to the view, each with its kind.

    >>> steps("c.7.3.0@100:200&9.4:12")
    [('@', '100:200'), ('&', '9.4:12')]
    """
    return _STEP.findall(segment_id)


def stored_id(segment_id: str) -> str:
    """Return the id under which a segment's rows are stored; for a view, the id of the viewed segment.

    >>> stored_id("c.7.3.0@100:200&9.4:12")
    'c.7.3.0'
    """
    first = _STEP.search(segment_id)
    return segment_id if first is None else segment_id[: first.start()]


def stored_ids(segment_id: str) -> tuple[str, ...]:
    """Return the ids of all stored values of a segment; the first is the value of its rows.

    >>> stored_ids("c.7.3.0@100:200&9.4:12=9.4:0")
    ('c.7.3.0', 'c.7.9.4')
    """
    if KEPT not in segment_id and LINEAGE not in segment_id:
        # Shortcut: most segments have no patch, and a bucket calls this hundreds of times per batch.
        return (segment_id.partition(CUT)[0],)
    base = stored_id(segment_id)
    patches = [part_of(base, facts)[0] for kind, facts in steps(segment_id) if kind != CUT]
    return tuple(dict.fromkeys([base, *patches]))


def bloom_id(segment_id: str) -> str:
    """Return the id under which the key filter of a segment's stored rows is stored.

    >>> bloom_id("c.7.3.0@100:200")
    'c.7.3.0.bloom'
    """
    return f"{stored_id(segment_id)}.bloom"


def part_of(segment_id: str, part: str) -> tuple[str, int]:
    """Return the patch's stored id and the part number that a step of a segment's name contains.

    >>> part_of("c.7.3.0@100:200", "9.4:12")
    ('c.7.9.4', 12)
    """
    patch, _, number = part.partition(":")
    return f"{stored_id(segment_id).rsplit('.', 2)[0]}.{patch}", int(number)


def part_name(patch_id: str, number: int) -> str:
    """Return the name that a part of a patch has in a step.

    >>> part_name("c.7.9.4", 12)
    '9.4:12'
    """
    return f"{'.'.join(patch_id.rsplit('.', 2)[1:])}:{number}"


def cut_name(segment_id: str, t_start: int, t_end: int) -> str:
    """Return the name of the rows of a segment with ``t_start <= T < t_end``.

    >>> cut_name("c.7.3.0@100:200", 150, 999)
    'c.7.3.0@150:200'
    """
    return _named(segment_id, [*steps(segment_id), (CUT, f"{t_start}:{t_end}")])


def cut_bounds(facts: str) -> tuple[int, int]:
    """Return the bounds that the step of a cut contains.

    >>> cut_bounds("-5:10")
    (-5, 10)
    """
    start, end = map(int, facts.split(":"))
    return start, end


def patched_name(segment_id: str, kept: str | None, lineage: str | None) -> str:
    """Return the name of selected rows of a segment, with new lineage if it is given.

    >>> patched_name("c.7.3.0=4.1:3@0:9", "9.4:12", "9.4:0")
    'c.7.3.0@0:9&9.4:12=9.4:0'
    """
    taken = steps(segment_id)
    if kept is not None:
        taken.append((KEPT, kept))
    if lineage is not None:
        taken = [*((kind, facts) for kind, facts in taken if kind != LINEAGE), (LINEAGE, lineage)]
    return _named(segment_id, taken)


def _named(segment_id: str, taken: list[tuple[str, str]]) -> str:
    joined: list[tuple[str, str]] = []
    for kind, facts in taken:
        if kind == CUT and joined and joined[-1][0] == CUT:
            (start, end), (former_start, former_end) = cut_bounds(facts), cut_bounds(joined.pop()[1])
            facts = f"{max(start, former_start)}:{min(end, former_end)}"
        joined.append((kind, facts))
    return stored_id(segment_id) + "".join(kind + facts for kind, facts in joined)
