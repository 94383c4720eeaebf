"""Runs of the punctuations benchmark: streams as the papers describe them, on this engine and simulated.

The papers (Ding et al., EDBT 2004 and CIKM 2004) say which joins they compare, but not all of their data.
Here a stream ``asc-s-m`` has Poisson(s) rows, then the next value is closed. Poisson(m) percent of the rows
have that value, the others one of the next ten. In ``random-s-m`` the values are shuffled among 15,000. Gaps
between rows are exponential, 10 ms on average for PWJoin and 2 ms for PJoin.

WJoin is this engine without contracts, PJoin and XJoin are the same with unbounded windows. The state is that
of live rows: rows of closed keys are dead at once. What the papers' joins hold of the same streams is
simulated row by row (``simulated``), and is the measure of the state: with other seeds it would be another.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from catalog.columns.arrow_types import POSITION_COLUMN, PUNCTUATION_COLUMN
from catalog.values.policies.punctuation_policy import PunctuationPolicy
from catalog.values.stream import Column, HttpSource, Punctuations, Stream
from operators.bucket.batch_output import BatchOutput
from operators.kernels.keys import Bools, Int64s
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from tests.operators.harness import Runner
from tests.sketches.sketch import Float64s

SECOND_US = 1_000_000
#: Columns of both streams; a punctuation on ``other`` closes no key.
COLUMNS = (Column("ts", "timestamp"), Column("k", "bigint"), Column("other", "bigint"))
#: Values among which the rows are that have not the value to be closed next.
_NEXT = 10
#: Values of streams that are shuffled or uniform.
_VALUES = 15_000
#: Added to the values of punctuations that no row matches.
_STRANGE = 10**9
_NEVER = np.iinfo(np.int64).max


class Source(NamedTuple):
    """How a stream is generated.

    Attributes:
        rows: Average number of rows between two punctuations; None: no punctuations, keys are uniform.
        own_percent: Average part of them with the value that is closed next.
        shuffled: Whether the values are in random order.
        on: Column that punctuations fix.
        strange: Whether punctuations fix values that no row has.
    """

    rows: float | None
    own_percent: float = 40
    shuffled: bool = False
    on: str = "k"
    strange: bool = False


@dataclass(frozen=True)
class Trial:
    """One run.

    Attributes:
        a: Stream of side a.
        b: Stream of side b.
        windows_s: Windows on a and b; None: unbounded.
        seconds: Length in event time.
        gap_ms: Average gap between rows of a stream.
        batch_ms: Length of a batch in event time.
        promises: Whether the streams have contracts, so that punctuations count.
        on: Columns that punctuations may fix by the contract, one each.
        announces: Whether the query returns result punctuations.
        purge_after: Number of closings after which stored rows are searched; None: by cost.
    """

    a: Source
    b: Source
    windows_s: tuple[float | None, float | None]
    seconds: int = 60
    gap_ms: float = 10
    batch_ms: int = 1000
    promises: bool = True
    on: tuple[str, ...] = ("k", "other")
    announces: bool = False
    purge_after: int | None = None

    @property
    def plain(self) -> Trial:
        """The same without punctuations."""
        return replace(self, promises=False, announces=False)

    @property
    def ends_us(self) -> Int64s:
        """Ends of the batches, µs."""
        batch_us = self.batch_ms * 1000
        return np.arange(batch_us, self.seconds * SECOND_US + 1, batch_us, dtype=np.int64)


@dataclass
class Outcome:
    """What a run gave, by batch.

    Attributes:
        live: Live rows of a and b at the end of the batch.
        held: Stored rows of both, dead ones included.
        pairs: Joined pairs.
        announced: Result punctuations.
        cpu_s: CPU time of the process.
    """

    live: list[tuple[int, int]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    pairs: list[int] = field(default_factory=list)
    announced: list[int] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    @property
    def steady_s(self) -> float:
        """CPU time without that of the first batch, in which the plan is compiled."""
        return sum(self.cpu_s[1:])

    @property
    def output(self) -> float:
        """Thousands of pairs per CPU second, without the first batch."""
        return sum(self.pairs[1:]) / self.steady_s / 1000


class Arrivals(NamedTuple):
    """Rows and punctuations of a stream in order: times in µs, keys, and which are punctuations."""

    times: Int64s
    keys: Int64s
    closes: Bools


@lru_cache(maxsize=2)  # a stream of a large trial takes 10 MB
def arrivals(trial: Trial, seed: int) -> tuple[Arrivals, Arrivals]:
    """Generate both streams."""
    numbers = np.random.default_rng(seed)
    return _generated(trial.a, trial, numbers), _generated(trial.b, trial, numbers)


def _generated(source: Source, trial: Trial, numbers: np.random.Generator) -> Arrivals:
    count = int(trial.seconds * 1000 / trial.gap_ms * 1.2)
    times = np.cumsum(numbers.exponential(trial.gap_ms * 1000, count)).astype(np.int64)
    times = times[times < trial.seconds * SECOND_US]
    if source.rows is None:
        return Arrivals(times, numbers.integers(0, _VALUES, len(times)), np.zeros(len(times), dtype=np.bool_))
    per = numbers.poisson(source.rows, int(len(times) / source.rows * 1.5) + 20)
    own = np.minimum(numbers.poisson(source.own_percent, len(per)) / 100, 1)
    value = np.repeat(np.arange(len(per)), per)
    has_it = numbers.random(len(value)) < np.repeat(own, per)
    keys = np.where(has_it, value, value + numbers.integers(1, _NEXT + 1, len(value)))[: len(times)]
    assert len(keys) == len(times), "more values are needed"
    # The punctuation of a value stands behind its rows.
    places = np.cumsum(per)
    places = places[places < len(times)]
    keys = np.insert(keys, places, np.arange(len(places)))
    if source.shuffled:
        keys = numbers.permutation(max(_VALUES, int(keys.max()) + 1))[keys]
    times = np.insert(times, places, times[np.maximum(places - 1, 0)])
    closes = np.zeros(len(keys), dtype=np.bool_)
    closes[places + np.arange(len(places))] = True
    if source.strange:
        keys = np.where(closes, keys + _STRANGE, keys)
    return Arrivals(times, keys, closes)


def simulated(trial: Trial, seed: int) -> Float64s:
    """Return the rows of a and b that the papers' join holds at the end of each batch, float64[batches, 2].

    A row leaves with its window, or when the other stream closes its key. If that was before the row, it is
    never stored.
    """
    streams = arrivals(trial, seed)
    held = []
    for own, other, window_s in zip(streams, streams[::-1], trial.windows_s, strict=True):
        times, keys = own.times[~own.closes], own.keys[~own.closes]
        leaves = np.full(len(times), _NEVER) if window_s is None else times + int(window_s * SECOND_US)
        if trial.promises:
            closed_at = np.full(max(int(s.keys.max()) for s in streams) + 1, _NEVER)
            closed_at[other.keys[other.closes]] = other.times[other.closes]
            leaves = np.maximum(times, np.minimum(leaves, closed_at[keys]))
        held.append(np.searchsorted(times, trial.ends_us) - np.searchsorted(np.sort(leaves), trial.ends_us))
    return np.stack(held, axis=1).astype(np.float64)


class _Counting(Runner):
    """A runner that counts rows and does not look at them."""

    outcome: Outcome

    def _count(self, output: BatchOutput) -> None:
        for found in output.results.values():
            told = found.column("_event_time").null_count
            self.outcome.announced[-1] += told
            self.outcome.pairs[-1] += found.num_rows - told


@cache
def run(trial: Trial, seed: int) -> Outcome:
    """Run a trial in one bucket."""
    contract = Punctuations(tuple((name,) for name in trial.on)) if trial.promises else None
    streams = {
        number: Stream(number, name, COLUMNS, "ts", 0, HttpSource(), punctuations=contract)
        for number, name in ((1, "A"), (2, "B"))
    }
    windows = ["UNBOUNDED" if w is None else f"{int(w * 1000)} MILLISECONDS" for w in trial.windows_s]
    told = ", _punctuation" if trial.announces else ""
    text = f"SELECT a.k{told} FROM A [RANGE {windows[0]}] a, B [RANGE {windows[1]}] b WHERE a.k = b.k"
    plan = build_plan([bind(text, {s.name: s for s in streams.values()}, name="q", query_id=1)], streams)
    policy = PunctuationPolicy(purge_after=trial.purge_after)
    plan = replace(plan, families=tuple(replace(f, punctuations=policy) for f in plan.families))
    rows = zip((1, 2), (trial.a, trial.b), arrivals(trial, seed), strict=True)
    tables = {number: _table(source.on, each, promises=trial.promises) for number, source, each in rows}
    runner = _Counting(streams)
    outcome = runner.outcome = Outcome()
    for number, end_us in enumerate(trial.ends_us):
        parts = {i: _part(found, end_us - trial.batch_ms * 1000, end_us) for i, found in tables.items()}
        outcome.pairs.append(0)
        outcome.announced.append(0)
        began = time.process_time()
        runner.step({i: part for i, part in parts.items() if part.num_rows}, [] if number else [plan])
        outcome.cpu_s.append(time.process_time() - began)
        _look(runner, outcome)
    return outcome


def _table(on: str, stream: Arrivals, *, promises: bool) -> tuple[pa.Table, Int64s]:
    """Return a stream as the harness takes it, and the times of its rows."""
    if not promises:
        stream = Arrivals(*(each[~stream.closes] for each in stream))
    columns = {
        "ts": pa.array(stream.times, pa.int64(), mask=stream.closes).cast(pa.timestamp("us")),
        "k": pa.array(stream.keys),
        "other": pa.array(stream.keys),
        POSITION_COLUMN: pa.array(np.arange(len(stream.keys))),
    }
    if promises:
        columns[PUNCTUATION_COLUMN] = pa.array(np.where(stream.closes, json.dumps([on]), None), pa.string())
    return pa.table(columns), stream.times


def _part(stream: tuple[pa.Table, Int64s], start_us: int, end_us: int) -> pa.Table:
    first, last = np.searchsorted(stream[1], (start_us, end_us))
    return stream[0].slice(first, last - first).combine_chunks()


def _look(runner: Runner, outcome: Outcome) -> None:
    """Count live and stored rows."""
    ((joins,),) = (tuple(bucket.families.values()) for bucket in runner.state)
    live, held = {"a": 0, "b": 0}, 0
    for _, side, _, state in joins.slices():
        closed = joins.closed.get("b" if side == "a" else "a")
        for rows in state.segments:
            dead = 0 if closed is None else np.count_nonzero(closed.closed(rows, joins.family.layouts[side]))
            live[side] += len(rows) - int(dead)
            held += len(rows)
    outcome.live.append((live["a"], live["b"]))
    outcome.held.append(held)
