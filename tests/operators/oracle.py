"""Nested loops, step by step: what the design's semantics (section 1) say, and nothing of how it is done.

Every row carries the set of queries that are entitled to it. The sets change only when queries come: the row
at hand is either processed while a query runs, or held for it at its activation. There are no slices, lineage
bits, epochs or terms here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from catalog.values.control import Heartbeat, Horizon
from catalog.values.query import Query, Side
from catalog.values.stream import Stream
from planner.families.families import SideName, family_id, is_apart
from tests.builders import Key
from tests.operators.queries import FILTERS, RESIDUALS, Row

#: A result: query id, position of a's row, position of b's row; None in place of the row that is absent, or
#: that a semi join does not give.
Result = tuple[int, int | None, int | None]
#: Streams, key, whether it has no inner joins, and the side whose rows are spread over buckets.
Family = tuple[int, int, Key, bool, tuple[SideName, ...]]


@dataclass
class Known:
    """A row as one side of one family knows it."""

    row: Row
    key: tuple[object, ...] | None
    batch: int
    kept: frozenset[str]
    entitled: set[int]


@dataclass
class NestedLoops:
    """All rows so far, and who may use them."""

    streams: Mapping[int, Stream]
    queries: tuple[Query, ...] = ()
    batch: int = 0
    newest: dict[int, int] = field(default_factory=dict)
    beats: dict[int, int] = field(default_factory=dict)
    late: dict[int, set[int]] = field(default_factory=dict)
    known: dict[Family, dict[str, list[Known]]] = field(default_factory=dict)
    since: dict[int, int] = field(default_factory=dict)
    matched: set[tuple[int, str, int]] = field(default_factory=set)
    decided: set[tuple[int, str, int]] = field(default_factory=set)
    times: dict[Result, int] = field(default_factory=dict)
    violating: set[tuple[Family, str, int]] = field(default_factory=set)
    #: Tells which keys a side has closed by the end of the batch, and not forgotten before it.
    closed: Callable[[Family, str, tuple[object, ...]], bool] = lambda *_: False

    def step(
        self,
        queries: Sequence[Query] | None,
        rows: Mapping[int, Sequence[Row]],
        heartbeats: Sequence[Heartbeat] = (),
        horizons: Sequence[Horizon] = (),
    ) -> Counter[Result]:
        """Process one batch and return its results; ``queries`` are all that run from now on."""
        if queries is not None:
            self._activate(queries)
        for horizon in horizons:
            self._leave_behind(horizon)
        start = {stream_id: self.watermark(stream_id) for stream_id in rows}
        for stream_id, arrived in rows.items():
            limit = start[stream_id]
            late = {r.pos for r in arrived if limit is not None and r.ts < limit}
            self.late.setdefault(stream_id, set()).update(late)
            self._learn(stream_id, [r for r in arrived if r.pos not in late])
            if arrived:
                self.newest[stream_id] = max([*(r.ts for r in arrived), self.newest.get(stream_id, -(2**62))])
        for beat in heartbeats:
            self.beats[beat.stream_id] = max(beat.watermark_us, self.beats.get(beat.stream_id, -(2**62)))
        results = self._results()
        self.batch += 1
        return results

    def _leave_behind(self, horizon: Horizon) -> None:
        """Let the rows of earlier batches below a horizon take part no more."""
        for (a, b, *_), sides in self.known.items():
            for stream_id, side in ((a, "a"), (b, "b")):
                for known in sides[side]:
                    if stream_id == horizon.stream_id and known.row.ts < horizon.time_us:
                        known.entitled.clear()

    def watermark(self, stream_id: int) -> int | None:
        """Return max(event time seen) - lateness, or a later heartbeat."""
        candidates = [self.beats[stream_id]] if stream_id in self.beats else []
        if stream_id in self.newest:
            candidates.append(self.newest[stream_id] - self.streams[stream_id].lateness_us)
        return max(candidates, default=None)

    def usable(
        self, family: Family, side: str, slack_us: int = 0, queries: Collection[int] | None = None
    ) -> set[int]:
        """Return the positions of the rows that some query could use with watermarks ``slack_us`` less.

        A semi or anti join cannot use a row that it judges once it has found a match.

        Args:
            family: The family.
            side: ``a`` or ``b``.
            slack_us: How much older the watermark is taken.
            queries: Ids of the queries asked about; None for all of the family.
        """
        opposite = self.watermark(family[1] if side == "a" else family[0])
        members = [q for q in self.queries if family_of(q) == family and (queries is None or q.id in queries)]
        return {
            known.row.pos
            for known in self.known.get(family, {}).get(side, [])
            if known.key is not None
            for q in members
            if q.id in known.entitled
            and not (needs_one_match(q, side) and (q.id, side, known.row.pos) in self.matched)
            and passes(side_of(q, side), known.row)
            and (opposite is None or known.row.ts + side_of(q, side).window_us > opposite - slack_us)
        }

    def _activate(self, queries: Sequence[Query]) -> None:
        before = {q.id: q for q in self.queries}
        for query in queries:
            self.since.setdefault(query.id, self.batch)
            if query.id in before or query.backfill == "none":
                continue
            family = family_of(query)
            holders = [q for q in before.values() if family_of(q) == family]
            for side, sides in self.known.get(family, {}).items():
                for known in sides:
                    if any(self._holds(h, side, known) for h in holders) and self._readable(
                        query, side, known
                    ):
                        known.entitled.add(query.id)
        self.queries = tuple(queries)

    def _holds(self, holder: Query, side: str, known: Known) -> bool:
        """Return whether a query of the plan before holds a row; not one that needs it until a match only."""
        if needs_one_match(holder, side):
            return False
        mine = side_of(holder, side)
        opposite = self.watermark(side_of(holder, "b" if side == "a" else "a").stream_id)
        reaches = opposite is None or known.row.ts + mine.window_us > opposite
        return holder.id in known.entitled and passes(mine, known.row) and reaches

    def _readable(self, query: Query, side: str, known: Known) -> bool:
        return set(side_of(query, side).columns) <= known.kept

    def _learn(self, stream_id: int, rows: Sequence[Row]) -> None:
        families: dict[Family, list[Query]] = {}
        for query in self.queries:
            families.setdefault(family_of(query), []).append(query)
        for family, members in families.items():
            sides = self.known.setdefault(family, {"a": [], "b": []})
            for side in ("a", "b"):
                if side_of(members[0], side).stream_id != stream_id:
                    continue
                columns = [pair[0 if side == "a" else 1] for pair in family[2]]
                kept = self._kept(members, side, columns, self.streams[stream_id].event_time)
                for row in rows:
                    if (family, side, row.pos) in self.violating:
                        continue
                    key = join_key([row.ts if c == "ts" else row.values[c] for c in columns])
                    sides[side].append(Known(row, key, self.batch, kept, {q.id for q in members}))

    def _kept(
        self, members: Sequence[Query], side: str, key: Sequence[str], event_time: str
    ) -> frozenset[str]:
        """What is kept of a row: what a query needs, the event time, and the key if it can be read back.

        The one key that cannot is a single double or decimal of at most 18 digits: only its int64 form is
        kept.
        """
        kept = {event_time}.union(*(side_of(q, side).columns for q in members))
        kinds = members[0].key_types
        lost = len(kinds) == 1 and (kinds[0] == "double" or _is_short_decimal(kinds[0]))
        return frozenset(kept if lost else kept | set(key))

    def _results(self) -> Counter[Result]:
        results: Counter[Result] = Counter()
        for query in self.queries:
            sides = self.known.get(family_of(query), {"a": [], "b": []})
            mine = {
                side: [k for k in rows if query.id in k.entitled and passes(side_of(query, side), k.row)]
                for side, rows in sides.items()
            }
            matches = sorted(
                (max(a.row.ts, b.row.ts), a.row.pos, b.row.pos)
                for a in mine["a"]
                for b in mine["b"]
                if self.batch in (a.batch, b.batch) and joins(query, a, b)
            )
            for time, a, b in matches:
                if query.kind in ("inner", "outer"):
                    results[query.id, a, b] += 1
                    self.times[query.id, a, b] = time
                for side, pos in (("a", a), ("b", b)):
                    if side in query.preserved and (query.id, side, pos) not in self.matched:
                        self.matched.add((query.id, side, pos))
                        if query.kind == "semi":
                            self._give(results, query, side, pos, time)
            if query.kind in ("outer", "anti"):
                for side in query.preserved:
                    self._give_absent(results, query, side, mine[side])
        return results

    def _give_absent(self, results: Counter[Result], query: Query, side: str, rows: Sequence[Known]) -> None:
        """Decide on rows once the other stream has passed them by the query's window, or closed their key."""
        other = "b" if side == "a" else "a"
        opposite = self.watermark(side_of(query, other).stream_id)
        for known in rows:
            row = (query.id, side, known.row.pos)
            due = known.row.ts + side_of(query, side).window_us
            judged = known.batch >= self.since[query.id] and row not in self.decided
            if not judged:
                continue
            ended = known.key is not None and self.closed(family_of(query), other, known.key)
            if ended or (opposite is not None and opposite >= due):
                self.decided.add(row)
                if row not in self.matched:
                    self._give(results, query, side, known.row.pos, due)

    def _give(self, results: Counter[Result], query: Query, side: str, pos: int, time: int) -> None:
        """Give a row of one side alone."""
        result = (query.id, pos, None) if side == "a" else (query.id, None, pos)
        results[result] += 1
        self.times[result] = time


def family_of(query: Query) -> Family:
    """Return streams and key, which a family's queries have in common."""
    spread = query.preserved if query.spreads else ()
    return query.a.stream_id, query.b.stream_id, query.key, is_apart(query), spread


def id_of(family: Family) -> str:
    """Return the id of a family."""
    a, b, key, absence, spread = family
    return family_id(a, b, key, absence=absence, spread=next(iter(spread), None))


def side_of(query: Query, side: str) -> Side:
    """Return side ``a`` or ``b`` of a query."""
    return query.a if side == "a" else query.b


def needs_one_match(query: Query, side: str) -> bool:
    """Return whether a query needs a row of a side only until its first match."""
    return query.kind in ("semi", "anti") and query.preserved == (side,)


def passes(side: Side, row: Row) -> bool:
    """Return whether a row passes a side's filter."""
    return side.filter is None or FILTERS[side.filter].passes(row.values)


def joins(query: Query, a: Known, b: Known) -> bool:
    """Return whether two rows that pass their filters are a result."""
    distance = b.row.ts - a.row.ts
    if a.key is None or a.key != b.key:
        return False
    if not (0 <= distance < query.a.window_us or 0 <= -distance < query.b.window_us):
        return False
    return query.residual is None or RESIDUALS[query.residual].passes(a.row.values, b.row.values)


def join_key(values: Sequence[object]) -> tuple[object, ...] | None:
    """Return the key as Python compares it; NULL anywhere is None, and NaN equals NaN."""
    if any(value is None for value in values):
        return None
    return tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in values)


def _is_short_decimal(kind: str) -> bool:
    return kind.startswith("decimal(") and int(kind[len("decimal(") :].split(",")[0]) <= 18
