"""Joined pairs: from candidate rows to result rows, each stored once for all its queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.steps import TIME
from catalog.values.plan import FamilyPlan
from catalog.values.query import OLDEST, RANK
from operators.filters.expressions import evaluate_residuals
from operators.join.marks import BatchMatches
from operators.kernels.keys import Bools, Int64s, verify_equal
from operators.lineage.lineage import RowClasses, query_set
from operators.lineage.routes import CountedPairs, RouteCounts, Router, TimeBounds, add_up
from operators.ranks.clocked_rows import cross_clock, own_clock, rows_before, rows_up_to
from operators.segments.layout import SideLayout
from operators.segments.segment import Segment, timestamps
from operators.slices.candidates import CandidateSide
from operators.steps.handed_pairs import HandedChunk, HandedPairs, pair_positions

RESULT_COLUMNS = ("_route", "_plan_version", "_batch", "_event_time", "_pos_a", "_pos_b")


@dataclass(frozen=True, slots=True, eq=False)
class PairBuilder:
    """Builder of pairs, compiled for one join of a family under one plan version.

    Attributes:
        layout_a: Columns of a.
        layout_b: Columns of b.
        columns_a: Columns of a that are part of results.
        columns_b: Columns of b that are part of results.
        router: Finds the route of a pair, the set of queries that the pair serves.
        residuals: Distinct residual predicates, each with the set of the queries that have it.
        residual_a: All columns of a that residual predicates read.
        residual_b: All columns of b that residual predicates read.
        silent: Set of the queries whose results are not pairs: semi and anti joins.
        handing: Set of the queries that pass their pairs to a next step.
        combines: Sides whose stream is an intermediate.
        counted: Sides with windows of rows.
    """

    layout_a: SideLayout
    layout_b: SideLayout
    columns_a: tuple[str, ...]
    columns_b: tuple[str, ...]
    router: Router
    residuals: tuple[tuple[str, int], ...]
    residual_a: tuple[str, ...]
    residual_b: tuple[str, ...]
    silent: int = 0
    handing: int = 0
    combines: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()

    def build(
        self,
        a: CandidateSide,
        b: CandidateSide,
        matches: BatchMatches | None = None,
        one_way: str | None = None,
    ) -> PairChunk | None:
        """Turn candidate pairs (equal int64 key) into pairs that serve at least one query.

        Args:
            a: Side a of n candidates.
            b: Side b of the same candidates.
            matches: Receives the pairs as matches, for outer, semi and anti joins, or None.
            one_way: The only side whose windows apply, if the two sides have different clocks. None: windows
                apply to the difference of event times.

        Returns:
            The pairs that satisfy the residuals, with their sets of queries, or None if there are none.
        """
        ts_a, ts_b = a.ts(), b.ts()
        in_rows: list[RowClasses] = []
        if one_way is None:
            distances = codes = self.router.distance_classes(ts_b - ts_a)
            within: Sequence[int] = self.router.within
        else:
            ahead = b.gathered(cross_clock) - a.gathered(own_clock)
            behind = a.gathered(cross_clock) - b.gathered(own_clock)
            distances, codes, within = self.router.one_way(one_way, ahead, behind, ts_a == ts_b)
            in_rows = self._in_rows(a, b, behind, ts_a == ts_b)
        near = [
            bounds.classes(ts_b - _times(a, self.layout_a, name, ts_a))
            for name, bounds in self.router.expiries
        ]
        near += [
            bounds.classes(ts_a - _times(b, self.layout_b, name, ts_b))
            for name, bounds in self.router.expiries_b
        ]
        if (entered := self._entered(a, b)) is not None:
            near.append(entered)
        parts = (*near, *in_rows, a.classes(), b.classes())
        # Sets of queries are built only if a later step changes them. Otherwise their numbers are enough.
        nested = None
        sets: list[int] = []
        if one_way is None and matches is None and not self.residuals and not self.handing:
            codes, nested = self.router.nested(codes, *parts)
            numbers = nested.numbers(self.router.keys)
            serving = numbers != 0
        else:
            codes, sets = self.router.masks_of(codes, within, *parts)
            serving = _serving(sets)
        event_time = np.maximum(ts_a, ts_b) if self.layout_a.timed else self._event_time(a, b)
        chosen = np.arange(len(codes))

        def choose(keep: Bools) -> None:
            nonlocal a, b, codes, event_time, chosen
            a, b, codes = a.select(keep), b.select(keep), codes[keep]
            event_time, chosen = event_time[keep], chosen[keep]

        if not serving.all():
            keep = serving[codes]
            if not keep.all():
                choose(keep)
        if len(codes) and not self.layout_a.exact:
            choose(
                verify_equal(
                    [a.read(self.layout_a, name) for name in self.layout_a.key],
                    [b.read(self.layout_b, name) for name in self.layout_b.key],
                    self.layout_a.key_types,
                )
            )
        if not len(codes):
            return None
        if self.residuals:
            codes, sets = self._apply_residuals(codes, sets, a, b)
            keep = _serving(sets)[codes]
            if not keep.any():
                return None
            if not keep.all():
                choose(keep)
        if matches is not None:
            matches.add(a, b, codes, sets)
            sets = [mask & ~self.silent for mask in sets]
            keep = _serving(sets)[codes]
            if not keep.any():
                return None
            if not keep.all():
                choose(keep)
            codes, sets = _distinct(codes, sets)
        arrays: list[pa.Array] = [
            timestamps(event_time),
            pa.array(a.pos()),
            pa.array(b.pos()),
            *(a.read(self.layout_a, name) for name in self.columns_a),
            *(b.read(self.layout_b, name) for name in self.columns_b),
        ]
        handed = None
        if self.handing:
            # In an ordered family that passes pairs on, both rows of a pair have the same clock value.
            clock = event_time if self.layout_a.timed else a.ts()
            oldest = np.minimum(
                self._oldest("a", a, self.layout_a, ts_a[chosen]),
                self._oldest("b", b, self.layout_b, ts_b[chosen]),
            )
            ranks = {
                f"{side}.{RANK}": rows.gathered(own_clock)
                for side, rows in (("a", a), ("b", b))
                if side in self.counted
            }
            handed = self._handed(a.key(), clock, oldest, ranks, codes, sets, arrays)
            codes, sets, arrays = self._results(codes, sets, arrays)
        if nested is None:
            numbers, listed = self.router.numbered(sets)
        routed = CountedPairs.of(codes, numbers, listed if nested is None else nested)
        routes = RouteCounts(self.router.query_ids, (routed,))
        apart = distances if len(chosen) == len(distances) else distances[chosen]
        per_class = np.bincount(apart, minlength=len(self.router.within))
        return PairChunk([pa.array(numbers[codes]), *arrays], chosen, per_class, routes, handed)

    def _handed(
        self,
        key: Int64s,
        clock: Int64s,
        oldest: Int64s,
        ranks: Mapping[str, Int64s],
        codes: Int64s,
        sets: Sequence[int],
        arrays: Sequence[pa.Array],
    ) -> HandedChunk | None:
        """Return the pairs for a next step; ``arrays`` are a chunk's arrays without the routes."""
        rows = np.flatnonzero(_serving([mask & self.handing for mask in sets])[codes])
        if not len(rows):
            return None
        times, pos_a, pos_b, *columns = (array.take(pa.array(rows)) for array in arrays)
        names = [*(f"a.{name}" for name in self.columns_a), *(f"b.{name}" for name in self.columns_b)]
        if self.layout_a.timed:
            names.append(OLDEST)
            columns.append(pa.array(oldest[rows]))
        else:
            names.append(TIME)
            columns.append(times)
        for name, of_rows in ranks.items():
            names.append(name)
            columns.append(pa.array(of_rows[rows]))
        return HandedChunk(
            key[rows],
            clock[rows],
            pair_positions(pos_a.to_numpy(), pos_b.to_numpy()),
            codes[rows],
            tuple(sets),
            dict(zip(names, columns, strict=True)),
        )

    def _entered(self, a: CandidateSide, b: CandidateSide) -> RowClasses | None:
        """Return the queries that were active when each pair's last row was processed, or None for all."""
        activations = self.router.activations
        if activations is None:
            return None
        newest = int(activations.versions[-1])
        # If all rows of one side are new, each pair has a new row. Otherwise rows have waited for their place
        # in the order, and the version must be checked.
        if any(all(run.rows.epoch_min >= newest for run in side.runs) for side in (a, b)):
            return None
        epochs = [side.gathered(Segment.epochs) for side in (a, b)]
        return activations.classes(np.maximum(*epochs))

    def _in_rows(self, a: CandidateSide, b: CandidateSide, behind: Int64s, ties: Bools) -> list[RowClasses]:
        """Return, as row classes, the queries whose windows of rows contain the rows of each pair.

        The windows end at the newest row of a pair. If both sides have the same newest event time, it is
        enough that the newest rows of one side are in their windows.

        Args:
            a: Side a of n candidates.
            b: Side b of the same candidates.
            behind: int64[n], distances of the candidates on the clock of b.
            ties: bool[n], candidates whose two sides have equal event times.
        """
        counted = [("a", *each) for each in _in_windows(self.router.ranks, self.layout_a, a, b)]
        counted += [("b", *each) for each in _in_windows(self.router.ranks_b, self.layout_b, b, a)]
        if not counted or not ties.any():
            return [classes for _, classes, _ in counted]
        if "b" in self.counted:
            in_b = np.searchsorted(self.router.bounds_b, behind, side="right").astype(np.int64)
            windows_of_b = RowClasses(in_b, self.router.within[len(self.router.bounds_a) + 1 :])
            counted.append(("b", windows_of_b, ties))
        return [_of_ties(counted, ties, self.router.within[0])]

    def _oldest(self, side: str, rows: CandidateSide, layout: SideLayout, newest: Int64s) -> Int64s:
        """Return the oldest event time of each row's parts, int64[n], given the newest event times.

        A row of an intermediate consists of one row of each joined stream; other rows have one event time.
        """
        if side not in self.combines or OLDEST not in layout.stored:
            return newest
        return _times(rows, layout, OLDEST, newest)

    def _results(
        self, codes: Int64s, sets: Sequence[int], arrays: list[pa.Array]
    ) -> tuple[Int64s, list[int], list[pa.Array]]:
        """Return the pairs that are results; their routes exclude queries that pass pairs to a next step."""
        codes, sets = _distinct(codes, [mask & ~self.handing for mask in sets])
        keep = _serving(sets)[codes]
        if keep.all():
            return codes, sets, arrays
        chosen = pa.array(keep)
        return codes[keep], sets, [array.filter(chosen) for array in arrays]

    def _event_time(self, a: CandidateSide, b: CandidateSide) -> Int64s:
        """Return the later event time of each pair, in a family whose event times are ordinary columns."""
        times = [
            side.read(layout, layout.event_time).cast(pa.int64()).to_numpy(zero_copy_only=False)
            for side, layout in ((a, self.layout_a), (b, self.layout_b))
        ]
        latest: Int64s = np.maximum(*times)
        return latest

    def _apply_residuals(
        self, codes: Int64s, sets: list[int], a: CandidateSide, b: CandidateSide
    ) -> tuple[Int64s, list[int]]:
        answers = evaluate_residuals(
            {name: a.read(self.layout_a, name) for name in self.residual_a},
            {name: b.read(self.layout_b, name) for name in self.residual_b},
            len(codes),
            [text for text, _ in self.residuals],
        )
        for (_, members), passes in zip(self.residuals, answers, strict=True):
            codes = codes * 2 + passes
            sets = [s for mask in sets for s in (mask & ~members, mask)]
            # Codes are counted by ``bincount``, because np.unique sorts. With np.unique, 12 queries over
            # three streams, each with its own residual, took 10% more CPU time.
            present = np.flatnonzero(np.bincount(codes, minlength=len(sets)))
            places = np.zeros(len(sets), dtype=np.int64)
            places[present] = np.arange(len(present))
            codes = places[codes]
            sets = [sets[int(code)] for code in present]
        return codes, sets


@dataclass(frozen=True, slots=True, eq=False)
class PairChunk:
    """Pairs that were built from the candidates of one probe.

    Attributes:
        arrays: Route, event time, positions, then columns of a and b; n values each.
        chosen: int64[n], ascending, indices of the pairs among the candidates.
        apart: int64[classes], number of pairs in each distance class of the router.
        routes: Routes of the pairs; a route may occur twice.
        handed: Pairs for a next step, or None. ``arrays`` and ``routes`` contain only the pairs that are
            results.
    """

    arrays: list[pa.Array]
    chosen: Int64s
    apart: Int64s
    routes: RouteCounts
    handed: HandedChunk | None = None


@dataclass(slots=True, eq=False)
class PairTable:
    """Pairs of one family and batch, gathered chunk by chunk from all its joins.

    Attributes:
        family: The family's part of the plan.
        matches: Matches of the pairs, or None if the family has no outer, semi or anti joins.
        chunks: Pairs of each probe.
    """

    family: FamilyPlan
    matches: BatchMatches | None = None
    chunks: list[PairChunk] = field(default_factory=list)

    def add(self, chunk: PairChunk) -> None:
        """Add the pairs of one probe."""
        self.chunks.append(chunk)

    def routes(self) -> RouteCounts:
        """Return the routes of all pairs, each once."""
        return add_up(tuple(q.id for q in self.family.queries), [chunk.routes for chunk in self.chunks])

    def handed(self) -> HandedPairs:
        """Return the pairs that are passed to next steps."""
        return HandedPairs(self.family, [c.handed for c in self.chunks if c.handed is not None])

    def finish(self, plan_version: int, batch: int) -> pa.RecordBatch | None:
        """Return all pairs with the columns of a result file, or None if there are none."""
        if not self.chunks:
            return None
        parts = [pa.concat_arrays(arrays) for arrays in zip(*(c.arrays for c in self.chunks), strict=True)]
        rows = len(parts[0])
        if not rows:
            return None
        constant = [
            pa.array(np.full(rows, plan_version, dtype=np.int32)),
            pa.array(np.full(rows, batch, dtype=np.int64)),
        ]
        names = [*RESULT_COLUMNS, *(f"a_{n}" for n in self.family.carried("a"))]
        names += [f"b_{n}" for n in self.family.carried("b")]
        return pa.RecordBatch.from_arrays([parts[0], *constant, *parts[1:]], names=names)


def _times(rows: CandidateSide, layout: SideLayout, name: str, newest: Int64s) -> Int64s:
    """Return one column of event times in an intermediate's rows, int64[n]; NULL becomes the newest time."""
    column = rows.read(layout, name)
    # The column is NULL only in rows that were made before any query needed it, and such a query does not use
    # these rows. So the value that replaces NULL does not matter.
    filled = pc.coalesce(column.cast(pa.int64()), pa.array(newest)) if column.null_count else column
    times: Int64s = filled.cast(pa.int64()).to_numpy()
    return times


def _in_windows(
    ranks: Sequence[tuple[str, TimeBounds]], layout: SideLayout, own: CandidateSide, other: CandidateSide
) -> Iterator[tuple[RowClasses, Bools]]:
    """Yield (queries, newest) per stream with ranks in one side of n candidates.

    ``queries`` are the queries whose windows contain the stream's row. ``newest``, bool[n], is whether this
    row is at least as new as the other side.

    Args:
        ranks: Rank columns of the side, each with bounds on the ranks.
        layout: Columns of the side.
        own: The side of the candidates.
        other: The other side of the candidates. The windows end at its event times.
    """
    for place, (name, bounds) in enumerate(ranks):
        rank = own.read(layout, name).to_numpy()
        up_to = other.gathered(partial(rows_up_to, place))
        yield bounds.classes(up_to - rank), rank > other.gathered(partial(rows_before, place))


def _of_ties(counted: Sequence[tuple[str, RowClasses, Bools]], ties: Bools, everyone: int) -> RowClasses:
    """Return the queries whose windows contain each pair's rows; in a tie, one side's newest rows are enough.

    Args:
        counted: For each stream: its side, the queries whose windows contain its rows, and which of these
            rows have the newest event time of their pair (bool[n]).
        ties: bool[n], pairs whose two sides have equal event times.
        everyone: Set of all queries.
    """
    codes = np.zeros(len(ties), dtype=np.int64)
    # Each code has three sets of queries: those whose windows contain the older rows, those whose windows
    # contain the newest rows of a, and those whose windows contain the newest rows of b.
    found = [(everyone, everyone, everyone)]
    for side, classes, newest in counted:
        assert classes.codes is not None, "bounds give each row a class"
        place = 2 if side == "b" else 1
        codes = (codes * len(classes.masks) + classes.codes) * 3 + np.where(ties & newest, place, 0)
        present, numbers = np.unique(codes, return_inverse=True)
        codes, before = numbers.astype(np.int64), found
        found = []
        for code in present.tolist():
            rest, of_place = divmod(code, 3)
            number, of_class = divmod(rest, len(classes.masks))
            sets = [*before[number]]
            sets[of_place] &= classes.masks[of_class]
            found.append((sets[0], sets[1], sets[2]))
    return RowClasses(codes, tuple(older & (of_a | of_b) for older, of_a, of_b in found))


def _distinct(codes: Int64s, sets: Sequence[int]) -> tuple[Int64s, list[int]]:
    """Renumber the codes of n pairs so that equal sets of queries have the same code."""
    numbers: dict[int, int] = {}
    renumbered = np.array([numbers.setdefault(mask, len(numbers)) for mask in sets], dtype=np.int64)
    return renumbered[codes], list(numbers)


def _serving(sets: Sequence[int]) -> Bools:
    """Return which sets are not empty, bool[len(sets)]."""
    return np.array([mask != 0 for mask in sets], dtype=np.bool_)


def residual_sets(family: FamilyPlan, members: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """Return the distinct residual predicates of some queries, each with the set of queries that have it.

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
