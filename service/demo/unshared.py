"""State and comparisons of the demo's queries without sharing, by Equation 1 of the State-Slice paper.

Equation 1 describes a join that stores whole windows of both streams, λ W rows of each, and compares every
arriving row with the opposite window; filters are applied after the join. The paper shares this join and adds
a router. The paper has no equation for queries without sharing. Here, each such query has its own join of
this kind and needs no router. A second estimate applies the filters before the join, so that a window
contains only rows that pass them.

The paper assumes a constant rate λ. Flights have no constant rate; for example, no flight leaves at 3 in the
morning. The rows of a window are therefore not computed as λ W, but counted in the demo's tables. They are
counted at the watermarks of a batch and compared with the shared state after this batch. Only pairs of equal
key count as compared, because an index finds them; the paper's nested loops compare all rows of a window.

An outer, semi or anti join is counted as the inner join whose pairs decide its results, with whole windows:
each row stays for its window, whether or not it has a partner. For a query over three streams, only the first
step is counted, which joins two of the streams.

Source: State-Slice (VLDB 2006), §3.1, Equation 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from catalog.steps import is_intermediate
from catalog.values.plan import FamilyPlan, Plan, PlannedFilter
from service.demo.data import ReplayedTables, micros

Int64s = np.ndarray[tuple[int], np.dtype[np.int64]]
Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]

#: Length of the intervals, an hour of event time, in which pairs are counted.
_BIN_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Need:
    """Number of rows held, or of pairs compared, by all queries with one join per query.

    Attributes:
        filters_last: Number if filters are applied after the join, as in Equation 1.
        filters_first: Number if filters are applied before the join.
    """

    filters_last: float = 0
    filters_first: float = 0

    def __add__(self, other: Need) -> Need:
        return Need(self.filters_last + other.filters_last, self.filters_first + other.filters_first)


@dataclass(frozen=True, slots=True)
class _Window:
    """One side of a query: event times of all rows, and of the rows that pass its filter, ascending."""

    stream: int
    opposite: int
    window_us: int
    all_us: Int64s
    passing_us: Int64s


class UnsharedMeter:
    """Computes state and comparisons for the queries of a plan, at any moment of the replay.

    Args:
        plan: A plan over the demo's streams.
        tables: The demo's streams.
    """

    def __init__(self, plan: Plan, tables: ReplayedTables) -> None:
        named = {stream.id: tables.named[stream.name] for stream in plan.streams}
        self._start_us, self._last_us = tables.first_us, tables.last_us
        self._windows: list[_Window] = []
        bins = (self._last_us - self._start_us) // _BIN_US + 1
        self._made = np.zeros(bins, dtype=np.int64), np.zeros(bins, dtype=np.int64)
        for family in plan.families:
            if is_intermediate(family.stream_a):
                continue
            self._add(family, named[family.stream_a], named[family.stream_b])
        self._pairs = np.cumsum(self._made[0]), np.cumsum(self._made[1])

    def state_rows(self, newest_us: Mapping[int, int], watermark_us: Mapping[int, int]) -> Need:
        """Return the rows held after a batch.

        Args:
            newest_us: Newest event time by stream id, µs; the demo's streams arrive in order.
            watermark_us: Watermark by stream id, µs.
        """
        total = Need()
        for side in self._windows:
            if side.stream in newest_us:
                # A row leaves once the opposite watermark is ahead of the row by the length of the window.
                held_from = watermark_us.get(side.opposite, -(2**62)) - side.window_us
                bounds = held_from, newest_us[side.stream]
                total += Need(_count(side.all_us, *bounds), _count(side.passing_us, *bounds))
        return total

    def pairs(self, until_us: int) -> Need:
        """Return the pairs of equal key that are compared up to an event time, at a resolution of an hour."""
        number = min((until_us - self._start_us) // _BIN_US, len(self._pairs[0]) - 1)
        if number < 0:
            return Need()
        return Need(int(self._pairs[0][number]), int(self._pairs[1][number]))

    def _add(self, family: FamilyPlan, a: pa.Table, b: pa.Table) -> None:
        """Add the windows and pairs of a family's queries."""
        pass_a, pass_b = _passing(a, family.filters_a), _passing(b, family.filters_b)
        ts_a, ts_b = micros(a), micros(b)
        keys_a, keys_b = _key_numbers(a, b, family.key)
        for query in family.queries:
            mask_a, mask_b = pass_a[query.filter_a], pass_b[query.filter_b]
            self._windows += [
                _Window(family.stream_a, family.stream_b, query.w_a_us, ts_a, ts_a[mask_a]),
                _Window(family.stream_b, family.stream_a, query.w_b_us, ts_b, ts_b[mask_b]),
            ]
            windows = query.w_a_us, query.w_b_us
            self._add_pairs(self._made[0], (ts_a, keys_a), (ts_b, keys_b), windows)
            passing = (ts_a[mask_a], keys_a[mask_a]), (ts_b[mask_b], keys_b[mask_b])
            self._add_pairs(self._made[1], *passing, windows)

    def _add_pairs(
        self, made: Int64s, a: tuple[Int64s, Int64s], b: tuple[Int64s, Int64s], windows: tuple[int, int]
    ) -> None:
        """Add to each hour the pairs that are made in it; a pair is made when its later row arrives."""
        span = self._last_us - self._start_us + 1
        # Shift the times of each key so far that no window reaches from one key to the next.
        at, bt = (np.sort((ts - self._start_us + 2 * span * keys)[keys >= 0]) for ts, keys in (a, b))
        w_a, w_b = (min(window, span) for window in windows)
        # First, rows of b match rows of a that are as old, or older by less than w_a; then rows of a match
        # rows of b that are older by less than w_b.
        met_by_b = np.searchsorted(at, bt, "right") - np.searchsorted(at, bt - w_a, "right")
        met_by_a = np.searchsorted(bt, at, "left") - np.searchsorted(bt, at - w_b, "right")
        for ts, met in ((bt, met_by_b), (at, met_by_a)):
            np.add.at(made, ts % (2 * span) // _BIN_US, met)


def _count(ts: Int64s, after_us: int, until_us: int) -> int:
    """Count the rows in (after, until]."""
    return int(np.searchsorted(ts, until_us, "right") - np.searchsorted(ts, after_us, "right"))


def _passing(table: pa.Table, filters: tuple[PlannedFilter, ...]) -> dict[int | None, Bools]:
    """Return a mask of the rows that pass each filter, by lineage bit, and of all rows under None."""
    passing: dict[int | None, Bools] = {None: np.ones(table.num_rows, dtype=np.bool_)}
    with duckdb.connect() as connection:
        connection.register("t", table)
        for planned in filters:
            found = connection.execute(f"SELECT coalesce({planned.sql}, false) AS passes FROM t").fetchnumpy()
            passing[planned.bit] = np.asarray(found["passes"], dtype=np.bool_)
    return passing


def _key_numbers(a: pa.Table, b: pa.Table, key: tuple[tuple[str, str], ...]) -> tuple[Int64s, Int64s]:
    """Return a number for each row's key; equal keys have equal numbers in both tables, NULL has -1."""
    ((column_a, column_b),) = key
    both = pa.chunked_array(a[column_a].chunks + b[column_b].chunks).combine_chunks()
    numbers = np.asarray(both.dictionary_encode().indices.fill_null(-1), dtype=np.int64)
    return numbers[: a.num_rows], numbers[a.num_rows :]
