"""Joined pairs: from candidate rows to the rows that are stored once for all their queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from catalog.values.plan import FamilyPlan
from operators.expressions import evaluate_residuals
from operators.keys import Int64s, verify_equal
from operators.layout import SideLayout
from operators.lineage import RowClasses, query_set
from operators.routes import Router
from operators.segment import Segment, timestamps

RESULT_COLUMNS = ("_route", "_plan_version", "_batch", "_event_time", "_pos_a", "_pos_b")


@dataclass(frozen=True, slots=True, eq=False)
class Probed:
    """One side of a probe: the rows and their classes."""

    rows: Segment
    classes: RowClasses


@dataclass(frozen=True, slots=True, eq=False)
class PairBuilder:
    """Compiled for one join of a family under one plan version.

    Attributes:
        layout_a: Columns of a.
        layout_b: Columns of b.
        columns_a: Columns of a that results carry.
        columns_b: Columns of b that results carry.
        router: Routes.
        residuals: Distinct residual predicates with the set of their queries and the columns they read.
    """

    layout_a: SideLayout
    layout_b: SideLayout
    columns_a: tuple[str, ...]
    columns_b: tuple[str, ...]
    router: Router
    residuals: tuple[tuple[str, int], ...]

    def build(self, a: Probed, a_rows: Int64s, b: Probed, b_rows: Int64s) -> PairChunk | None:
        """Turn candidate pairs (equal int64 key) into pairs that serve at least one query.

        Args:
            a: Rows of side a.
            a_rows: int64[n] into ``a``.
            b: Rows of side b.
            b_rows: int64[n] into ``b``.

        Returns:
            The pairs with their sets of queries, residuals applied; None if there are none.
        """
        distance = b.rows.ts[b_rows] - a.rows.ts[a_rows]
        codes, sets = self.router.masks(distance, a.classes, a_rows, b.classes, b_rows)
        if not all(sets):
            serves = np.array([mask != 0 for mask in sets], dtype=np.bool_)[codes]
            a_rows, b_rows, codes = a_rows[serves], b_rows[serves], codes[serves]
        if len(codes) and not self.layout_a.exact:
            same = verify_equal(
                [self.layout_a.read(a.rows, name, a_rows) for name in self.layout_a.key],
                [self.layout_b.read(b.rows, name, b_rows) for name in self.layout_b.key],
                self.layout_a.key_types,
            )
            a_rows, b_rows, codes = a_rows[same], b_rows[same], codes[same]
        if not len(codes):
            return None
        columns_a = {name: self.layout_a.read(a.rows, name, a_rows) for name in self.columns_a}
        columns_b = {name: self.layout_b.read(b.rows, name, b_rows) for name in self.columns_b}
        keep = None
        if self.residuals:
            codes, sets, keep = self._apply_residuals(codes, sets, columns_a, columns_b)
            if not keep.any():
                return None
        numbers = np.array([self.router.number(mask) for mask in sets], dtype=np.int64)
        event_time = np.maximum(a.rows.ts[a_rows], b.rows.ts[b_rows])
        arrays: list[pa.Array] = [
            pa.array(numbers[codes]),
            timestamps(event_time),
            pa.array(a.rows.pos[a_rows]),
            pa.array(b.rows.pos[b_rows]),
            *columns_a.values(),
            *columns_b.values(),
        ]
        if keep is not None and not keep.all():
            chosen = pa.array(keep)
            arrays = [array.filter(chosen) for array in arrays]
            codes = codes[keep]
        counts = np.bincount(codes, minlength=len(sets))
        routes = {self.router.number(s): s for s, n in zip(sets, counts, strict=True) if n}
        totals: dict[int, int] = {}
        for mask, count in zip(sets, counts, strict=True):
            if count:
                totals[self.router.number(mask)] = totals.get(self.router.number(mask), 0) + int(count)
        return PairChunk(arrays, len(codes), routes, totals)

    def _apply_residuals(
        self, codes: Int64s, sets: list[int], a: dict[str, pa.Array], b: dict[str, pa.Array]
    ) -> tuple[Int64s, list[int], np.ndarray[tuple[int], np.dtype[np.bool_]]]:
        answers = evaluate_residuals(a, b, len(codes), [text for text, _ in self.residuals])
        for (_, members), passes in zip(self.residuals, answers, strict=True):
            codes = codes * 2 + passes
            sets = [s for mask in sets for s in (mask & ~members, mask)]
            present, codes = np.unique(codes, return_inverse=True)
            sets = [sets[int(code)] for code in present]
        keep = np.array([mask != 0 for mask in sets], dtype=np.bool_)[codes]
        return codes, sets, keep


@dataclass(frozen=True, slots=True, eq=False)
class PairChunk:
    """Pairs of one probe.

    Attributes:
        arrays: Route, event time, positions, then columns of a and b.
        rows: Number of pairs.
        routes: Set of queries per route number.
        totals: Pairs per route number.
    """

    arrays: list[pa.Array]
    rows: int
    routes: dict[int, int]
    totals: dict[int, int]


@dataclass(slots=True, eq=False)
class PairTable:
    """Pairs of one family and batch, gathered chunk by chunk from all its joins.

    Attributes:
        family: The family's part of the plan.
        chunks: Pairs of each probe.
        totals: Pairs per route number.
        routes: Set of queries per route number.
    """

    family: FamilyPlan
    chunks: list[PairChunk] = field(default_factory=list)
    totals: dict[int, int] = field(default_factory=dict)
    routes: dict[int, int] = field(default_factory=dict)

    def add(self, chunk: PairChunk) -> None:
        """Take in the pairs of one probe."""
        self.chunks.append(chunk)
        self.routes |= chunk.routes
        for route, count in chunk.totals.items():
            self.totals[route] = self.totals.get(route, 0) + count

    def finish(self, plan_version: int, batch: int) -> pa.RecordBatch | None:
        """Return all pairs with the columns of a result file, or None without any."""
        if not self.chunks:
            return None
        parts = [pa.concat_arrays(arrays) for arrays in zip(*(c.arrays for c in self.chunks), strict=True)]
        rows = len(parts[0])
        constant = [
            pa.array(np.full(rows, plan_version, dtype=np.int32)),
            pa.array(np.full(rows, batch, dtype=np.int64)),
        ]
        names = [*RESULT_COLUMNS, *(f"a_{n}" for n in self.family.columns_a)]
        names += [f"b_{n}" for n in self.family.columns_b]
        return pa.RecordBatch.from_arrays([parts[0], *constant, *parts[1:]], names=names)


def residual_sets(family: FamilyPlan, members: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """Return the distinct residuals of queries of a family, each with the set of those that have it.

    Args:
        family: The family.
        members: Numbers of the queries.
    """
    having: dict[str, list[int]] = {}
    for number in members:
        residual = family.queries[number].residual
        if residual:
            having.setdefault(residual, []).append(number)
    return tuple((text, query_set(numbers)) for text, numbers in sorted(having.items()))
