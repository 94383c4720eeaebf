"""Exchange: sends pairs of one step to the buckets of their keys in the next step, one batch later.

    batch n     bucket 0   pairs of A and B ── by the key of (A, B) and C ──> file of bucket 0 ──┬─ bucket 0
                bucket 1   pairs of A and B ─────────────────────────────────> file of bucket 1 ─┼─ bucket 1
    batch n + 1            every bucket reads its part of all files                              ...

Each bucket writes one file with a part for each receiving family and bucket. The manifest of the batch names
the buckets that wrote a file. So the commit of this batch fixes the input of the next batch, and a repeated
batch reads the same rows again.

    | length of header | header (JSON) | Arrow IPC of a part | Arrow IPC of ... |

The plan may change between the two batches. Therefore a part names the queries of its lineage bits, and
``arrived`` translates these bits into the bits of the plan in force in the next batch. Pairs that only
departed queries would use are left out.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from catalog.columns.arrow_types import arrow_type
from catalog.values.plan import FamilyPlan
from operators.errors import CorruptPayload
from operators.kernels.keys import bucket_of, join_key
from operators.kernels.sort import sort_into_buckets
from operators.segments.encoding.row_codec import KEY, POS, TS, decode_rows, encode_rows
from operators.segments.layout import SideLayout
from operators.segments.merge import concat
from operators.segments.segment import COLUMN, LINEAGE, WORD_BITS, Segment
from operators.steps.handed_pairs import HandedPairs

_LENGTH = struct.Struct("<I")
#: Parts begin at a multiple of this many bytes, as in Arrow's buffers.
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True, eq=False)
class ExchangedRows:
    """Pairs that one bucket sends to another bucket for one family.

    Attributes:
        family: Family that takes the pairs as rows of one side.
        members: Columns of the intermediate that the lineage bits represent, in the order of the bits.
        bucket: Number of the receiving bucket.
        rows: Packed rows, sorted by (key, position).
        side: Side of the family that takes the pairs, ``a`` or ``b``.
    """

    family: str
    members: tuple[str, ...]
    bucket: int
    rows: pa.RecordBatch
    side: str = "a"


def set_out(
    handed: HandedPairs, family: FamilyPlan, layout: SideLayout, buckets: int, side: str = "a"
) -> list[ExchangedRows]:
    """Return the pairs that queries of a next step use, by the bucket of their key in that step.

    Args:
        handed: Pairs of the previous step.
        family: Family of the next step.
        layout: Layout of the side that takes the pairs.
        buckets: Number of buckets.
        side: Side of the next step that takes the pairs.
    """
    key_columns = tuple(name for name in layout.key if name not in layout.stored)
    found = handed.taken(family, (*layout.stored, *key_columns), side)
    if found is None:
        return []
    # Sorted by position first, so that rows of equal key are in order of position after the sort by key.
    found = found.take(pa.array(np.argsort(found.column(POS).to_numpy(), kind="stable")))
    given = pa.table({name: found.column(COLUMN + name) for name in layout.key})
    key, valid = join_key(given, layout.key, layout.key_types)
    rows = found.drop_columns([COLUMN + name for name in key_columns]).set_column(0, KEY, pa.array(key))
    order, starts = sort_into_buckets(key, bucket_of(key, buckets), valid, buckets)
    ordered = rows.take(pa.array(order))
    members = tuple(f.columns[0] for f in family.filters(side))
    return [
        ExchangedRows(family.id, members, bucket, ordered.slice(start, end - start), side)
        for bucket, (start, end) in enumerate(pairwise(starts.tolist()))
        if end > start
    ]


def arrived(
    parts: Sequence[ExchangedRows], family: FamilyPlan, layout: SideLayout, version: int, side: str = "a"
) -> Segment | None:
    """Return the previous batch's pairs as rows of a family's side, or None if no query uses any of them.

    Args:
        parts: Pairs that the buckets have sent.
        family: The family, under the plan in force.
        layout: Layout of the side.
        version: Version of the plan in force.
        side: Side of the family that takes the pairs.
    """
    own = [part for part in parts if (part.family, part.side) == (family.id, side)]
    segments = [_translated(part, family, layout, version) for part in own]
    segments = [segment for segment in segments if len(segment)]
    return concat(segments) if segments else None


def _translated(part: ExchangedRows, family: FamilyPlan, layout: SideLayout, version: int) -> Segment:
    """Return the rows of a part with the lineage bits and columns of the plan in force."""
    places = {name: place for place, name in enumerate(part.members)}
    before = [part.rows.column(f"{LINEAGE}{word}").to_numpy() for word in range(_words(len(part.members)))]
    rows, filters = part.rows.num_rows, family.filters(part.side)
    lineage = [np.zeros(rows, dtype=np.uint64) for _ in range(_words(len(filters)))]
    for place, planned in enumerate(filters):
        was = places.get(planned.columns[0])
        if was is not None:
            bit = before[was // WORD_BITS] >> np.uint64(was % WORD_BITS) & np.uint64(1)
            lineage[place // WORD_BITS] |= bit << np.uint64(place % WORD_BITS)
    names = [KEY, TS, POS, *(f"{LINEAGE}{word}" for word in range(len(lineage)))]
    arrays = [*(part.rows.column(name) for name in (KEY, TS, POS)), *map(pa.array, lineage)]
    kept = set(part.rows.schema.names)
    for name in layout.stored:
        names.append(COLUMN + name)
        # A column is missing if only queries newer than these pairs read it. Such queries do not use these
        # pairs.
        missing = COLUMN + name not in kept
        arrays.append(
            pa.nulls(rows, arrow_type(layout.types[name])) if missing else part.rows.column(COLUMN + name)
        )
    packed = pa.RecordBatch.from_arrays(arrays, names=names)
    taken = np.logical_or.reduce([word != 0 for word in lineage])
    if not taken.all():
        packed = packed.filter(pa.array(taken))
    return Segment(packed, version, tuple(f.bit for f in filters))


def _words(filters: int) -> int:
    return -(-filters // WORD_BITS)


def encode_exchange(parts: Sequence[ExchangedRows]) -> bytes:
    """Encode all pairs that one bucket sends in a batch."""
    bodies = []
    facts: list[list[object]] = []
    for part in parts:
        body = encode_rows(part.rows)
        bodies.append(body.ljust(-(-len(body) // _ALIGNMENT) * _ALIGNMENT, b"\0"))
        of_b = [part.side] if part.side == "b" else []
        facts.append([part.family, part.members, part.bucket, len(bodies[-1]), *of_b])
    text = json.dumps(facts, separators=(",", ":")).encode()
    text = text.ljust(-(len(text) + _LENGTH.size) % _ALIGNMENT + len(text))
    return b"".join([_LENGTH.pack(len(text)), text, *bodies])


def rehashed_exchange(parts: Sequence[ExchangedRows], buckets: int) -> list[ExchangedRows]:
    """Return pairs in transit, reassigned to another number of buckets."""
    found = []
    for part in parts:
        places = bucket_of(np.ascontiguousarray(part.rows.column(KEY).to_numpy()), buckets)
        for bucket in np.unique(places).tolist():
            rows = part.rows.filter(pa.array(places == bucket))
            found.append(ExchangedRows(part.family, part.members, bucket, rows, part.side))
    return found


def decode_exchange(data: pa.Buffer, bucket: int | None = None) -> list[ExchangedRows]:
    """Return the pairs that a bucket has sent to another bucket, or to all buckets.

    Args:
        data: Result of ``encode_exchange``; columns may be views of these bytes.
        bucket: Number of the bucket that reads the pairs; None for all buckets.

    Raises:
        CorruptPayload: The bytes are not pairs that a bucket has sent.
    """
    try:
        (length,) = _LENGTH.unpack_from(data)
        start = _LENGTH.size + length
        found = []
        for family, members, of_bucket, size, *of_b in json.loads(data[_LENGTH.size : start].to_pybytes()):
            if bucket in (of_bucket, None):
                rows = decode_rows(data.slice(start, size))
                rows.validate()
                side = "b" if of_b else "a"
                found.append(ExchangedRows(family, tuple(members), of_bucket, rows, side))
            start += size
    except (ValueError, TypeError, LookupError, EOFError, struct.error, pa.ArrowException) as error:
        raise CorruptPayload(
            f"{data.size} bytes are not the pairs that a bucket has sent",
            detail=f"{type(error).__name__}: {error}.",
            hint="If the batch fails in the same way when it is repeated, check memory and disk.",
        ) from error
    return found
