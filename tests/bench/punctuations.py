"""The punctuations benchmark: the experiments of PJoin and PWJoin, on this engine.

    python -m tests.bench.punctuations                      ten seeds; writes docs/bench/punctuations.md
    python -m tests.bench.punctuations --seeds 2 --only pwjoin-8 --out build/bench

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import typer

from catalog.arrow_types import POSITION_COLUMN, PUNCTUATION_COLUMN
from catalog.values.plan import PunctuationPolicy
from catalog.values.stream import Column, HttpSource, Punctuations, Stream
from operators.bucket.batch_output import BatchOutput
from operators.bucket.closing import BatchClosings
from operators.kernels.keys import Bools, Int64s
from operators.pack import pack
from operators.pack.pack import Packer
from operators.sketches.sketch import Float64s
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from tests.bench.reports import read_figures, rounded, table, write_page
from tests.operators.harness import Runner

SECOND_US = 1_000_000
#: Columns of both streams; a punctuation on ``other`` closes no key.
COLUMNS = (Column("ts", "timestamp"), Column("k", "bigint"), Column("other", "bigint"))
#: Values among which the rows are that have not the value to be closed next.
_NEXT = 10
#: Values of streams that are shuffled or uniform.
_VALUES = 15_000
#: Batches of many rows of each stream, as if rows were always waiting: the papers' joins are CPU-limited.
_LARGE_BATCHES: Mapping[str, int] = {"seconds": 5_000, "batch_ms": 500_000}
_LARGE_PJOIN_BATCHES: Mapping[str, int] = {"seconds": 500, "batch_ms": 50_000}
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


class Finding(NamedTuple):
    """A figure of an experiment.

    Attributes:
        what: Text.
        found: As measured.
        simulated: What the papers' join gives for the same streams; None where that is not simulated.
        wanted: What the simulation with other seeds, or the paper, gave.
        error: Standard error of ``found`` as a mean over seeds; None where it is not such a mean.
    """

    what: str
    found: float
    simulated: float | None
    wanted: str
    error: float | None = None


Measure = Callable[[Outcome], float]


def mean(trial: Trial, seeds: int, measure: Measure) -> float:
    """Return the average of a measure over seeds."""
    return float(np.mean([measure(run(trial, seed)) for seed in range(seeds)]))


def of_mean(values: Sequence[float]) -> float | None:
    """Return the standard error of an average; None for one value."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def state(what: str, trial: Trial, seeds: int, wanted: str, sides: Sequence[int] = (0, 1)) -> Finding:
    """Return the live rows of some sides, relative to those without punctuations."""
    columns = list(sides)
    live = [float(np.array(run(trial, seed).live)[:, columns].sum(axis=1).mean()) for seed in range(seeds)]
    papers, whole = (
        float(np.mean([simulated(each, seed)[:, columns].sum(axis=1).mean() for seed in range(seeds)]))
        for each in (trial, trial.plain)
    )
    error = of_mean([rows / whole for rows in live])
    return Finding(what, float(np.mean(live)) / whole, papers / whole, wanted, error)


def speed(what: str, trial: Trial, seeds: int, wanted: str, plain: Trial | None = None) -> Finding:
    """Return pairs per CPU second, relative to those of another trial: by default, without punctuations."""
    plain = trial.plain if plain is None else plain
    for each in (trial, plain):
        run(each, seeds)  # what is compiled and loaded first is not counted
    ratios = []
    for seed in range(seeds):
        # In turn, so that other work on the machine slows both.
        order = (trial, plain) if seed % 2 else (plain, trial)
        found = {each: run(each, seed) for each in order}
        assert found[trial].pairs == found[plain].pairs, "punctuations change results"
        ratios.append(found[plain].steady_s / found[trial].steady_s)
    return Finding(what, float(np.mean(ratios)), None, wanted, of_mean(ratios))


def _announced(part: slice, per_s: float = 1) -> Measure:
    return lambda outcome: sum(outcome.announced[part]) * per_s


def pwjoin_8(seeds: int) -> list[Finding]:
    """State relative to WJoin's."""
    wanted = {1: "0.77", 5: "0.57", 15: "0.27"}
    source = Source(100)
    return [
        state(f"windows of {w} s", Trial(source, source, (w, w)), seeds, text) for w, text in wanted.items()
    ]


def pwjoin_9(seeds: int) -> list[Finding]:
    """Output per CPU second relative to WJoin's."""
    wanted = {5: "a little below 1", 15: "above 1"}
    source = Source(100)
    return [
        speed(f"windows of {w} s", Trial(source, source, (w, w), **_LARGE_BATCHES), seeds, text)
        for w, text in wanted.items()
    ]


def pwjoin_10(seeds: int) -> list[Finding]:
    """Output per CPU second relative to WJoin's, all punctuations irrelevant."""
    a, b = Source(30, strange=True), Source(30, shuffled=True, strange=True)
    trial = Trial(a, b, (1, 1), **_LARGE_BATCHES)
    skipped = replace(trial, a=a._replace(on="other"), b=b._replace(on="other"))
    wanted = "at least 0.97"
    return [
        speed("values that no row has; WJoin skips the punctuations", trial, seeds, wanted, skipped),
        speed(
            "on another column; WJoin skips the punctuations",
            skipped,
            seeds,
            wanted,
            replace(skipped, on=("other",)),
        ),
        speed("on another column; WJoin's streams have no punctuations", skipped, seeds, wanted),
    ]


def pwjoin_11(seeds: int) -> list[Finding]:
    """Result punctuations in 60 s."""
    trial = Trial(Source(30), Source(30, shuffled=True), (1, 1), announces=True)
    pjoin = replace(trial, windows_s=(None, None))
    count = _announced(slice(None))
    return [
        Finding("PWJoin", mean(trial, seeds, count), None, "395"),
        Finding("PJoin", mean(pjoin, seeds, count), None, "1 to 3"),
    ]


def pwjoin_12(seeds: int) -> list[Finding]:
    """Result punctuations per second in the second half; stream a has no punctuations."""
    trial = Trial(Source(None), Source(30), (5, 5), announces=True)
    pjoin = replace(trial, windows_s=(None, None))
    rate = _announced(slice(len(trial.ends_us) // 2, None), 2 / trial.seconds)
    return [
        Finding("PWJoin", mean(trial, seeds, rate), None, "3.3"),
        Finding("PJoin", mean(pjoin, seeds, rate), None, "0"),
    ]


def _pjoin(a: float, b: float, **facts: Any) -> Trial:
    return Trial(Source(a), Source(b), (None, None), **({"seconds": 30, "gap_ms": 2} | facts))


def pjoin_5(seeds: int) -> list[Finding]:
    """State relative to XJoin's."""
    wanted = {10: "0.011", 20: "0.014", 30: "0.016", 40: "0.022"}
    return [state(f"{s} rows per punctuation", _pjoin(s, s), seeds, text) for s, text in wanted.items()]


def pjoin_7(seeds: int) -> list[Finding]:
    """Output per CPU second of the last third relative to that of the first one."""
    found = []
    trial = _pjoin(30, 30, **_LARGE_PJOIN_BATCHES)
    for name, each, wanted in (("PJoin", trial, "about 1"), ("XJoin", trial.plain, "below 1")):
        run(each, seeds)  # what is compiled and loaded first is not counted
        rates = [_thirds(run(each, seed)) for seed in range(seeds)]
        steadiness = [last / first for first, _, last in rates]
        found.append(Finding(name, float(np.mean(steadiness)), None, wanted, of_mean(steadiness)))
    return found


def _thirds(outcome: Outcome) -> tuple[float, float, float]:
    """Return thousands of pairs per CPU second in each third of a run, without its first batch."""
    third = (len(outcome.pairs) - 1) // 3
    first, middle, last = (
        sum(outcome.pairs[at : at + third]) / sum(outcome.cpu_s[at : at + third]) / 1000
        for at in (1, 1 + third, 1 + 2 * third)
    )
    return first, middle, last


def pjoin_8(seeds: int) -> list[Finding]:
    """Stored rows, dead ones included, and thousands of pairs per CPU second of PJoin-n."""
    found = []
    for n in (1, 10, 100, 400, 800):
        trial = _pjoin(10, 10, purge_after=n, batch_ms=100)
        run(trial, seeds)  # what is compiled and loaded first is not counted
        held = [float(np.mean(run(trial, seed).held)) for seed in range(seeds)]
        found.append(Finding(f"PJoin-{n}, rows", float(np.mean(held)), None, "grows with n", of_mean(held)))
        rates = [run(trial, seed).output for seed in range(seeds)]
        peaks = "peaks between"
        found.append(Finding(f"PJoin-{n}, output", float(np.mean(rates)), None, peaks, of_mean(rates)))
    return found


def pjoin_10(seeds: int) -> list[Finding]:
    """State of each side relative to XJoin's, 10 rows per punctuation of a."""
    wanted = {20: "0.51", 30: "0.68", 40: "0.76"}
    return [
        state(
            f"{side}, {s} rows per punctuation of b", _pjoin(10, s), seeds, text if side == "a" else "0", [n]
        )
        for s, text in wanted.items()
        for n, side in enumerate("ab")
    ]


def pjoin_11(seeds: int) -> list[Finding]:
    """Thousands of pairs per CPU second in each third of a run of PJoin-1, 10 rows per punctuation of a."""
    found = []
    for s in (20, 30, 40):
        trial = _pjoin(10, s, purge_after=1, **_LARGE_PJOIN_BATCHES)
        run(trial, seeds)  # what is compiled and loaded first is not counted
        curves = zip(*(_thirds(run(trial, seed)) for seed in range(seeds)), strict=True)
        for part, rates in zip(("first", "second", "last"), curves, strict=True):
            what = f"{s} rows per punctuation of b, {part} third"
            found.append(Finding(what, float(np.mean(rates)), None, "grows with b's rows", of_mean(rates)))
    return found


def pjoin_12(seeds: int) -> list[Finding]:
    """Output per CPU second relative to XJoin's, 10 and 20 rows per punctuation."""
    policies = {"PJoin-1": 1, "PJoin-10000": 10_000, "PJoin, by cost": None}
    small = {"seconds": 30, "batch_ms": 10_000}
    found = []
    for name, n in policies.items():
        wanted = "below 1" if n == 1 else "about 1"
        trial = _pjoin(10, 20, purge_after=n, **_LARGE_PJOIN_BATCHES)
        found.append(speed(f"{name}, batches of 25,000 rows", trial, seeds, wanted))
        trial = replace(trial, **small)
        found.append(speed(f"{name}, batches of 5,000 rows", trial, seeds, wanted))
    return found


def pjoin_14(seeds: int) -> list[Finding]:
    """Result punctuations per second."""
    trial = _pjoin(40, 40, announces=True)
    half = len(trial.ends_us) // 2
    return [
        Finding("all", mean(trial, seeds, _announced(slice(None), 1 / trial.seconds)), None, "12.5"),
        Finding("first half", mean(trial, seeds, _announced(slice(half), 2 / trial.seconds)), None, "12.5"),
    ]


def no_contract(seeds: int) -> list[Finding]:
    """Part of the CPU time that is spent on punctuations where no stream has a contract."""
    spent = 0.0

    def timed(called: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal spent
            began = time.process_time()
            try:
                return called(*args, **named)
            finally:
                spent += time.process_time() - began

        return call

    trial = Trial(Source(100), Source(100), (5, 5), promises=False)
    shares = []
    with (
        patch.object(BatchClosings, "of", timed(BatchClosings.of)),
        patch.object(Packer, "_closings", timed(Packer._closings)),
        patch.object(pack, "parted", timed(pack.parted)),
    ):
        for seed in range(seeds):
            spent = 0.0
            whole_s = sum(run(trial, seed).cpu_s)
            shares.append(spent / whole_s)
    return [Finding("batches of 100 rows", float(np.mean(shares)), None, "at most 0.01", of_mean(shares))]


EXPERIMENTS: Mapping[str, Callable[[int], list[Finding]]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        *(pwjoin_8, pwjoin_11, pwjoin_12, pjoin_5, pjoin_10, pjoin_14),
        *(pwjoin_9, pwjoin_10, pjoin_7, pjoin_8, pjoin_11, pjoin_12, no_contract),
    )
}


def main(
    seeds: Annotated[int, typer.Option(help="Runs of each trial.")] = 10,
    only: Annotated[list[str] | None, typer.Option(help="Experiments; all by default.")] = None,
    out: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("docs/bench"),
) -> None:
    """Run experiments and write what they give."""
    found = read_figures(out / "punctuations.json")
    for name in only or EXPERIMENTS:
        findings = EXPERIMENTS[name](seeds)
        found[name] = {"seeds": seeds, "findings": [rounded(each) for each in findings]}
        print(name, json.dumps(found[name]), flush=True)
        write_page(out, "punctuations", report(found), found)


def report(found: Mapping[str, Any]) -> str:
    """Return the page."""
    rows = [
        (
            *(name, EXPERIMENTS[name].__doc__, what, found[name]["seeds"], f"{value:.4g}"),
            *("" if error is None else f"± {error:.2g}" for error in errors[:1] or (None,)),
            *("" if own is None else f"{own:.3g}", wanted),
        )
        for name in EXPERIMENTS
        if name in found
        for what, value, own, wanted, *errors in found[name]["findings"]
    ]
    header = (
        *("experiment", "figure", "of", "seeds", "measured", "standard error"),
        *("papers' join, same streams", "wanted"),
    )
    return _PAGE.format(table=table(header, rows, 3))


_PAGE = """# Punctuations: the experiments of PJoin and PWJoin

`make bench-punctuations` runs the experiments of both papers on this engine, in one bucket and without Spark.
Each figure is a mean over seeds, with its standard error. `tests/bench/punctuations.py` says how the
streams are made. [Punctuations](../punctuations.md#figures) says what the figures mean.

{table}

**Rows of a unique side.** Each row of a `unique` stream closes its own key, so the key of a row that is held
is stored twice: in the row and in the closing. Three designs were tried on the demo of auctions (12,000
auctions, two buckets), in the middle of the run:

1. Closings derived from the stored rows, with a closing written when its row leaves. A row leaves when the
   other stream closes its key, when a filter stops it or when its window ends, and each of these places would
   have to hand over a key.
2. The same, with one comparison of the segments before and after each batch that finds the keys of all rows
   that have left. This was not built, because it saves too little: of 7,213 closings of auctions that are
   remembered, 478 (7%) have a row that is held, which makes 3% of the state. The others outlive their rows.
   If nothing closes the keys of auctions, it is 39% of the closings, and at most 9% of the state.
3. Closings without what nobody asks once their batch is over: their positions, and the ends of intervals of a
   single key. A closing of auctions takes 16.7 bytes instead of 18.6, and the whole state 289 kB instead of
   310 kB. This is the design that is built.
"""


if __name__ == "__main__":
    typer.run(main)
