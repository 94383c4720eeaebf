"""Pairs of a family that are handed to the next steps of its queries, where they are rows of one side.

    pairs of A and B      queries 3 and 7 hand on             rows of (A, B)
    a1 b1                 3, 7                                key  newer time  position  _l0 = 0b11
    a1 b2                 7                                   key  newer time  position  _l0 = 0b10

A pair is handed on only once, with a lineage bit for each query that has the pair. The position of a pair is
computed from the positions of its two rows. So the position is the same on replay, in every bucket, and
however the input is cut into batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.steps import EXPIRES, membership
from catalog.values.plan import FamilyPlan, PlannedFilter
from operators.kernels.keys import Int64s, Words, mix
from operators.segments.encoding.row_codec import KEY, POS, TS
from operators.segments.layout import SideLayout
from operators.segments.segment import COLUMN, LINEAGE, WORD_BITS, Segment

#: Multiplier for the first position of a pair, so that (1, 2) and (2, 1) differ.
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, eq=False)
class HandedChunk:
    """Pairs of one probe that are handed on.

    Attributes:
        key: int64[n], join key of each pair.
        ts: int64[n], the newer event time of each pair, µs UTC; in an ordered family, the clock of its rows.
        pos: int64[n], positions of the pairs (``pair_positions``).
        codes: int64[n], index of each pair's set in ``sets``.
        sets: Sets of the family's queries.
        columns: Columns of the intermediate by name, n values each.
    """

    key: Int64s
    ts: Int64s
    pos: Int64s
    codes: Int64s
    sets: tuple[int, ...]
    columns: Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True, eq=False)
class HandedPairs:
    """Pairs of one family and batch that are handed on.

    Attributes:
        family: The family that made the pairs.
        chunks: The pairs, one chunk per probe.
    """

    family: FamilyPlan
    chunks: Sequence[HandedChunk]

    def rows(
        self, following: FamilyPlan, layout: SideLayout, version: int, side: str = "a"
    ) -> Segment | None:
        """Return the pairs as rows of a side of a next step, except pairs that no query there uses.

        Args:
            following: Family of the next step.
            layout: Layout of the side.
            version: Plan version in force.
            side: Side of the next step that takes the pairs.
        """
        found = self.taken(following, layout.stored, side)
        if found is None:
            return None
        key, pos = (found.column(name).to_numpy() for name in (KEY, POS))
        if not layout.key:
            # In a next step without a key, all rows have the same key.
            key = np.zeros(len(key), dtype=np.int64)
            found = found.set_column(0, KEY, pa.array(key))
        bits = tuple(f.bit for f in following.filters(side))
        return Segment(found.take(pa.array(np.lexsort((pos, key)))), version, bits)

    def taken(self, following: FamilyPlan, columns: Sequence[str], side: str) -> pa.RecordBatch | None:
        """Return, unsorted, the pairs that some query of a next step uses, or None if there are none.

        Args:
            following: Family of the next step.
            columns: Further columns of the intermediate to include.
            side: Side of the next step that takes the pairs.
        """
        filters = following.filters(side)
        words = -(-len(filters) // WORD_BITS)
        takers = self._takers(filters)
        lineage: list[list[Words]] = [[] for _ in range(words)]
        kept: list[Int64s] = []
        for chunk in self.chunks:
            of_sets = _lineage(chunk.sets, takers, words)
            taken = np.array([bool(row.any()) for row in of_sets], dtype=np.bool_)
            rows = np.flatnonzero(taken[chunk.codes])
            kept.append(rows)
            for word in range(words):
                lineage[word].append(of_sets[chunk.codes[rows], word])
        if not sum(map(len, kept)):
            return None
        key = np.concatenate([c.key[rows] for c, rows in zip(self.chunks, kept, strict=True)])
        pos = np.concatenate([c.pos[rows] for c, rows in zip(self.chunks, kept, strict=True)])
        ts = np.concatenate([c.ts[rows] for c, rows in zip(self.chunks, kept, strict=True)])
        names = [KEY, TS, POS, *(f"{LINEAGE}{word}" for word in range(words))]
        arrays = [pa.array(values) for values in (key, ts, pos, *map(np.concatenate, lineage))]
        for name in columns:
            if name == EXPIRES:
                until = [self._until(c, r, following, side) for c, r in zip(self.chunks, kept, strict=True)]
                parts = [pa.array(each) for each in until]
            else:
                parts = [c.columns[name].take(pa.array(r)) for c, r in zip(self.chunks, kept, strict=True)]
            names.append(COLUMN + name)
            arrays.append(pa.concat_arrays(parts))
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _until(self, chunk: HandedChunk, rows: Int64s, following: FamilyPlan, side: str) -> Int64s:
        """Return the event time up to which queries of a next step need each pair, int64[m]."""
        places = {query.id: number for number, query in enumerate(self.family.queries)}
        # Queries are grouped by their rule of expiry, because most queries have the same rule.
        saying: dict[tuple[tuple[tuple[str, int], ...], int], int] = {}
        for query in following.queries:
            expires = query.expires(side)
            window_us = query.w_a_us if side == "a" else query.w_b_us
            rule = (expires, 0 if expires else window_us)
            saying[rule] = saying.get(rule, 0) | 1 << places[query.id]
        codes = chunk.codes[rows]
        found = np.full(len(rows), np.iinfo(np.int64).min)
        for (expires, window_us), members in saying.items():
            until = [_microseconds(chunk.columns[name], rows) + us for name, us in expires]
            least = np.minimum.reduce(until) if until else chunk.ts[rows] + window_us - 1
            serves = np.array([mask & members != 0 for mask in chunk.sets], dtype=np.bool_)[codes]
            found = np.where(serves, np.maximum(found, least), found)
        return found

    def _takers(self, filters: Sequence[PlannedFilter]) -> dict[int, int]:
        """Return the bit index of each query's filter in the next step, by the set of that query alone."""
        places = {f.columns: place for place, f in enumerate(filters)}
        return {
            1 << number: places[membership(query.id),]
            for number, query in enumerate(self.family.queries)
            if query.hands_on and (membership(query.id),) in places
        }


def _microseconds(column: pa.Array, rows: Int64s) -> Int64s:
    """Return event times at some indices, int64[m], µs UTC."""
    times: Int64s = column.take(pa.array(rows)).cast(pa.int64()).to_numpy()
    return times


def pair_positions(a: Int64s, b: Int64s) -> Int64s:
    """Return the position of each pair, given the positions of its rows, int64[n], not negative.

    Two pairs have the same position with a probability of 2^-63.
    """
    left = mix(np.ascontiguousarray(a).view(np.uint64))
    mixed = mix((left * _ODD) ^ np.ascontiguousarray(b).view(np.uint64))
    return (mixed >> np.uint64(1)).view(np.int64)


def _lineage(sets: Sequence[int], takers: Mapping[int, int], words: int) -> npt.NDArray[np.uint64]:
    """Return the lineage words of each set of queries, uint64[sets, words]."""
    found = np.zeros((len(sets), words), dtype=np.uint64)
    for number, members in enumerate(sets):
        while members:
            bit = members & -members
            members ^= bit
            place = takers.get(bit)
            if place is not None:
                found[number, place // WORD_BITS] |= np.uint64(1 << place % WORD_BITS)
    return found
