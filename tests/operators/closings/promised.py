"""Random cases in which some rows are punctuations, and the judge of their results: nested loops."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal
from unittest.mock import patch

import pyarrow as pa
from hypothesis import strategies as st

from catalog.columns.arrow_types import PUNCTUATION_COLUMN
from catalog.values.plan import Plan
from catalog.values.policies.punctuation_policy import PurgePrices
from catalog.values.stream import Constraints, Punctuations, Stream
from operators.closings import closed_keys
from operators.closings.closing_rows import ends
from operators.rehash.rehash import rehashed
from operators.segments.encoding.row_codec import KEY
from operators.segments.segment import COLUMN
from tests.operators.cases import SPREADS, Case, cases, check_values, plan_versions
from tests.operators.harness import Runner
from tests.operators.oracle import Family, NestedLoops, Result, family_of, id_of, passes, side_of
from tests.operators.queries import Row, a_table

#: Sets of columns that a punctuation may fix; some are keys of families, some are not.
ON = (("k",), ("m",), ("k", "m"), ("w",), ("v",))

#: Columns that a punctuation fixes, by stream and position.
Patterns = Mapping[tuple[int, int], tuple[str, ...]]


@dataclass(frozen=True)
class Promised:
    """Case in which some rows are punctuations.

    Attributes:
        case: The case, its streams with contracts.
        patterns: Rows that are punctuations, with the columns that they fix.
        searches: When stored rows are searched: after each closing, rarely or never.
        numbers: Number of buckets after each batch in turn; 0 for no change.
    """

    case: Case
    patterns: Patterns
    searches: Literal["each", "rows", "never"]
    numbers: tuple[int, ...]


@st.composite
def promised_cases(
    draw: st.DrawFn, *, activations: bool = False, family: int | None = None, absence: bool = False
) -> Promised:
    case = draw(cases(activations=activations, family=family, max_rows=90, absence=absence))
    remember_us = draw(st.sampled_from((0, 0, 0, 20, None)))
    unique = draw(st.sampled_from(((), (), ("k",), ("m",), ("k", "m"))))
    clustered = draw(st.sampled_from(((), (), (), ("k",), ("m",), ("k", "m"))))
    ordered = draw(st.sampled_from(((), (), (("k", 0),), (("k", 2), ("w", 1)))))
    with_contract = draw(st.sets(st.sampled_from((1, 2, 3)), min_size=1))
    streams = {
        i: replace(
            s,
            punctuations=Punctuations(ON, remember_us=remember_us),
            constraints=Constraints(unique, clustered, ordered) if draw(st.booleans()) else Constraints(),
        )
        if i in with_contract
        else s
        for i, s in case.streams.items()
    }
    seed = draw(st.integers(0, 2**30))
    every = draw(st.sampled_from((3, 5, 9)))
    patterns: dict[tuple[int, int], tuple[str, ...]] = {}
    for step in case.steps:
        for stream_id, row in step.rows:
            code = hash((seed, stream_id, row.pos)) % 1009
            if stream_id in with_contract and code % every == 0:
                # Mostly the key that most families have.
                patterns[stream_id, row.pos] = ON[max(0, code // every % 8 - 3)]
    # Keys of families with contracts do not spread over more buckets.
    spread = draw(st.sampled_from(SPREADS))
    case = replace(case, steps=tuple(replace(step, spread=spread) for step in case.steps))
    moves = draw(st.sampled_from(((0,), (0,), (0, 1, 0, 3, 2))))
    searches = draw(st.sampled_from(("each", "rows", "never")))
    return Promised(replace(case, streams=streams), patterns, searches, moves)


def table_of(stream: Stream, rows: Sequence[Row], patterns: Patterns) -> pa.Table:
    """Return rows and punctuations as they are read; columns that a punctuation does not fix are NULL."""
    fixed = [patterns.get((stream.id, row.pos)) for row in rows]
    bare = [
        row if on is None else replace(row, values={n: v if n in on else None for n, v in row.values.items()})
        for row, on in zip(rows, fixed, strict=True)
    ]
    table = a_table(stream, bare)
    if stream.punctuations is None:
        return table
    times = [None if on is not None else row.ts for row, on in zip(rows, fixed, strict=True)]
    place = table.column_names.index(stream.event_time)
    table = table.set_column(place, stream.event_time, pa.array(times, pa.int64()).cast(pa.timestamp("us")))
    marks = [None if on is None else json.dumps(on) for on in fixed]
    return table.append_column(PUNCTUATION_COLUMN, pa.array(marks, pa.string()))


def check_promised(promised: Promised, *, exactly: bool = False) -> Runner:
    """Compare a case with nested loops over the rows that are neither late nor recorded as violating."""
    case, patterns = promised.case, promised.patterns
    runner = Runner(case.streams, case.buckets, case.slack_us, case.stored)
    oracle = NestedLoops(case.streams)
    judge = Judge(case.streams, patterns)
    plans: list[Plan] = []
    sources: dict[tuple[int, int], Row] = {}
    expected: Counter[Result] = Counter()
    for number, step in enumerate(case.steps):
        changes = plan_versions(step, case, plans[-1] if plans else None)
        plans += changes
        flowing = [s.id for s in plans[-1].streams]
        staying = set.intersection(*({f.id for f in plan.families} for plan in changes or plans[-1:]))
        before = {place: closed for place, closed in remembered(runner).items() if place[0] in staying}
        came = step.by_stream(flowing)
        rows = {i: [r for r in given if (i, r.pos) not in patterns] for i, given in came.items()}
        sources |= {(i, r.pos): r for i, arrived in rows.items() for r in arrived}
        beats = [b for b in step.heartbeats if b.stream_id in flowing]
        tables = {i: table_of(case.streams[i], given, patterns) for i, given in came.items()}
        limits = {i: oracle.watermark(i) for i in came}
        outputs = runner.step(tables, changes, beats)
        queries = step.queries if step.queries is not None else oracle.queries
        families = {id_of(f): f for f in map(family_of, queries)}
        oracle.violating = {
            (families[family], side, pos) for family, side, pos in runner.violating if family in families
        }
        judge.step(families.values(), came, limits)
        assert oracle.violating <= judge.may_violate
        if exactly:
            # Rows that no query wants need not come to the bucket.
            wanted = {
                (family, side, pos)
                for family, side, pos in judge.may_violate
                for query in queries
                if family_of(query) == family
                and passes(side_of(query, side), sources[side_of(query, side).stream_id, pos])
            }
            assert wanted <= oracle.violating
        oracle.closed = closed_by(judge, (before, remembered(runner)))
        expected += oracle.step(step.queries, rows, beats)
        where = f"batch {oracle.batch - 1}"
        if runner.results != expected:
            missing, surplus = expected - runner.results, runner.results - expected
            raise AssertionError(f"{where}: missing {dict(missing)}, surplus {dict(surplus)}")
        late = {i: positions for i, positions in oracle.late.items() if positions}
        assert {i: positions for i, positions in runner.late.items() if positions} == late, where
        for output in outputs:
            check_values(output, plans[-1], oracle, sources)
        move(runner, promised.numbers[number % len(promised.numbers)])
    return runner


#: Remembered closings per family id and side: intervals of exact keys, or keys by value.
Remembered = Mapping[tuple[str, str], tuple[list[tuple[int, int]], set[tuple[object, ...]]]]


def remembered(runner: Runner) -> Remembered:
    """Return the closings that the buckets remember."""
    found: dict[tuple[str, str], tuple[list[tuple[int, int]], set[tuple[object, ...]]]] = {}
    for bucket in runner.state:
        for family, joins in bucket.families.items():
            for side, closed in joins.closed.items():
                intervals, keys = found.setdefault((family, side), ([], set()))
                closings = closed.all_remembered()
                if closings is None:
                    continue
                if closed.layout.exact:
                    intervals += zip(closings.column(KEY).to_pylist(), ends(closings).tolist(), strict=True)
                else:
                    names = [name for name in closings.schema.names if name.startswith(COLUMN)]
                    keys |= {tuple(row.values()) for row in closings.select(names).to_pylist()}
    return found


def closed_by(judge: Judge, known: Sequence[Remembered]) -> Callable[[Family, str, tuple[object, ...]], bool]:
    """Return whether the buckets remember that a side has closed a key; it must have done so."""

    def closed(family: Family, side: str, key: tuple[object, ...]) -> bool:
        place = (id_of(family), side)
        for intervals, keys in (each[place] for each in known if place in each):
            (number, *_) = key
            within = isinstance(number, int) and any(low <= number <= high for low, high in intervals)
            if within or key in keys:
                assert judge.has_closed(family, side, key)
                return True
        return False

    return closed


class Judge:
    """Return the rows that break a promise if nothing is ever forgotten, given rows and punctuations."""

    def __init__(self, streams: Mapping[int, Stream], patterns: Patterns) -> None:
        self._streams = streams
        self._patterns = patterns
        self._closed: set[tuple[Family, str, tuple[object, ...]]] = set()
        self._greatest: dict[tuple[Family, str], int] = {}
        self._last: dict[tuple[Family, str], tuple[object, ...]] = {}
        self.may_violate: set[tuple[Family, str, int]] = set()

    def has_closed(self, family: Family, side: str, key: tuple[object, ...]) -> bool:
        """Return whether a side of a family has closed a key so far."""
        number = 0 if side == "a" else 1
        slack = self._streams[family[number]].constraints.slack(frozenset(pair[number] for pair in family[2]))
        greatest = self._greatest.get((family, side))
        if (family, side, key) in self._closed:
            return True
        if slack is None or greatest is None or not isinstance(key[0], int):
            return False
        return key[0] < greatest - slack

    def step(
        self,
        families: Iterable[Family],
        came: Mapping[int, Sequence[Row]],
        limits: Mapping[int, int | None],
    ) -> None:
        for family in families:
            for side, number in (("a", 0), ("b", 1)):
                stream_id = family[number]
                key = [pair[number] for pair in family[2]]
                limit = limits.get(stream_id)
                rules, place = self._streams[stream_id].constraints, (family, side)
                slack = rules.slack(frozenset(key))
                for row in came.get(stream_id, ()):
                    on = self._patterns.get((stream_id, row.pos))
                    values = tuple(row.ts if c == "ts" else row.values[c] for c in key)
                    if on is None and set(rules.clustered) == set(key):
                        before = self._last.get(place, values)
                        if before != values and None not in before:
                            self._closed.add((*place, before))
                        self._last[place] = values
                    if on is None and limit is not None and row.ts < limit:
                        continue
                    if slack is not None and on is None and isinstance(values[0], int):
                        greatest = self._greatest.setdefault(place, values[0])
                        if values[0] < greatest - slack:
                            self.may_violate.add((family, side, row.pos))
                        self._greatest[place] = max(values[0], greatest)
                    if on is None and (family, side, values) in self._closed:
                        self.may_violate.add((family, side, row.pos))
                    unique = set(self._streams[stream_id].constraints.unique)
                    closes = unique and unique <= set(key) if on is None else set(on) == set(key)
                    if closes and None not in values:
                        self._closed.add((family, side, values))


def move(runner: Runner, buckets: int) -> None:
    """Hash the state into another number of buckets; 0 for no change."""
    if not buckets:
        return
    runner.state = [rehashed(runner.state, number, buckets) for number in range(buckets)]
    runner.buckets, runner.segments = buckets, [{} for _ in range(buckets)]
    if runner.stored:
        runner.batch -= 1  # the batch that is over names the segments
        runner.state = [runner._reloaded(number, bucket) for number, bucket in enumerate(runner.state)]
        runner.batch += 1


def run_promised(promised: Promised, *, exactly: bool = False) -> Runner:
    """Check a case whose stored rows are searched when it says."""

    def closings(prices: PurgePrices, rows: int, *counts: float) -> float:
        return 1 if promised.searches == "each" else max(1, rows)

    least = inf if promised.searches == "never" else 1
    with patch.multiple(closed_keys, closings_until_search=closings, LEAST_CLOSINGS=least):
        return check_promised(promised, exactly=exactly)
