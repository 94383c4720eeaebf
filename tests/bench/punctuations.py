"""The punctuations benchmark: state and output of the experiments of PJoin and PWJoin, on this engine.

    python -m tests.bench.punctuations                      ten seeds; writes docs/bench/punctuations.json
    python -m tests.bench.punctuations --seeds 2 --only pwjoin-8 --out build/bench/punctuations

The papers (Ding et al., EDBT 2004 and CIKM 2004) say which joins they compare, but not all of their data.
Here a stream ``asc-s-m`` has Poisson(s) rows, then the next value is closed. Poisson(m) percent of the rows
have that value, the others one of the next ten. In ``random-s-m`` the values are shuffled. Gaps between rows
are exponential, 10 ms on average for PWJoin and 2 ms for PJoin. WJoin is this engine without contracts, PJoin
and XJoin are the same with unbounded windows. The state is that of live rows: rows of closed keys are dead at
once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import typer

from catalog.arrow_types import POSITION_COLUMN, PUNCTUATION_COLUMN
from catalog.values.query import UNBOUNDED_US
from catalog.values.stream import Column, HttpSource, Punctuations, Stream
from operators.bucket.batch_output import BatchOutput
from operators.closings import closed_keys
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from tests.operators.harness import Runner

SECOND_US = 1_000_000
#: Columns of both streams; a punctuation on ``other`` closes no key.
COLUMNS = (Column("ts", "timestamp"), Column("k", "bigint"), Column("other", "bigint"))
#: Values among which the rows are that have not the value to be closed next.
_NEXT = 10
_BATCH_US = 200_000


@dataclass(frozen=True)
class Source:
    """How a stream is generated.

    Attributes:
        rows: Average number of rows between two punctuations; None: no punctuations, keys are uniform.
        own_percent: Average part of them with the value that is closed next.
        shuffled: Whether the values are in random order.
        on: Column that punctuations fix.
    """

    rows: float | None
    own_percent: float = 40
    shuffled: bool = False
    on: str = "k"


@dataclass(frozen=True)
class Trial:
    """One run.

    Attributes:
        a: Stream of side a.
        b: Stream of side b.
        windows_s: Windows on a and b; None: unbounded.
        seconds: Length in event time.
        gap_ms: Average gap between rows of a stream.
        promises: Whether the streams have contracts, so that punctuations count.
        purge_after: Number of closings after which stored rows are searched; None: as the engine decides.
        values: Keys of a uniform stream.
    """

    a: Source
    b: Source
    windows_s: tuple[float | None, float | None]
    seconds: int = 60
    gap_ms: float = 10
    promises: bool = True
    purge_after: int | None = None
    values: int = 1000


@dataclass
class Outcome:
    """What a run gave.

    Attributes:
        live: Live rows of a and b after each batch.
        held: Stored rows of both after each batch, dead ones included.
        pairs: Joined pairs of each batch.
        announced: Result punctuations of each batch.
        cpu_s: CPU time of the process in batches.
    """

    live: list[tuple[int, int]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    pairs: list[int] = field(default_factory=list)
    announced: list[int] = field(default_factory=list)
    cpu_s: float = 0.0

    def state(self, side: int | None = None) -> float:
        """Return the average number of live rows of a side, or of both."""
        counts = np.array(self.live, dtype=np.float64)
        return float((counts.sum(axis=1) if side is None else counts[:, side]).mean())

    def per_second(self) -> float:
        """Return result punctuations per second of event time."""
        return sum(self.announced) / (len(self.announced) * _BATCH_US / SECOND_US)


def generated(source: Source, stream: Stream, trial: Trial, numbers: np.random.Generator) -> pa.Table:
    """Return rows and punctuations of a stream in order, with positions."""
    count = int(trial.seconds * 1000 / trial.gap_ms * 1.2)
    times = np.cumsum(numbers.exponential(trial.gap_ms * 1000, count)).astype(np.int64)
    times = times[times < trial.seconds * SECOND_US]
    if source.rows is None:
        keys, closes = numbers.integers(0, trial.values, len(times)), np.zeros(len(times), dtype=np.bool_)
    else:
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
        times = np.insert(times, places, times[np.maximum(places - 1, 0)])
        closes = np.zeros(len(keys), dtype=np.bool_)
        closes[places + np.arange(len(places))] = True
    if source.shuffled:
        keys = np.random.default_rng(1).permutation(int(keys.max()) + 1)[keys]
    if not trial.promises:
        keys, times, closes = keys[~closes], times[~closes], closes[~closes]
    marks = pa.array(np.where(closes, json.dumps([source.on]), None), pa.string())
    columns = {
        "ts": pa.array(times, pa.int64(), mask=closes).cast(pa.timestamp("us")),
        "k": pa.array(keys),
        "other": pa.array(keys),
        POSITION_COLUMN: pa.array(np.arange(len(keys))),
    }
    if stream.punctuations is not None:
        columns[PUNCTUATION_COLUMN] = marks
    return pa.table(columns).append_column("batch", pa.array(times // _BATCH_US))


class _Counting(Runner):
    """A runner that counts rows and does not look at them."""

    outcome: Outcome

    def _count(self, output: BatchOutput) -> None:
        for table in output.results.values():
            told = table.column("_event_time").null_count
            self.outcome.announced[-1] += told
            self.outcome.pairs[-1] += table.num_rows - told


def run(trial: Trial, seed: int) -> Outcome:
    """Run a trial in one bucket."""
    numbers = np.random.default_rng(seed)
    streams = {}
    for stream_id, name in ((1, "A"), (2, "B")):
        contract = Punctuations((("k",), ("other",))) if trial.promises else None
        streams[stream_id] = Stream(stream_id, name, COLUMNS, "ts", 0, HttpSource(), punctuations=contract)
    windows = ["UNBOUNDED" if w is None else f"{int(w * 1000)} MILLISECONDS" for w in trial.windows_s]
    told = ", _punctuation" if trial.promises else ""
    text = f"SELECT a.k{told} FROM A [RANGE {windows[0]}] a, B [RANGE {windows[1]}] b WHERE a.k = b.k"
    query = bind(text, {s.name: s for s in streams.values()}, name="q", query_id=1)
    assert trial.windows_s[0] is not None or query.a.window_us == UNBOUNDED_US
    plan = build_plan([query], streams)
    tables = {
        1: generated(trial.a, streams[1], trial, numbers),
        2: generated(trial.b, streams[2], trial, numbers),
    }
    runner = _Counting(streams)
    outcome = runner.outcome = Outcome()
    least, root = closed_keys._LEAST_CLOSINGS, closed_keys.isqrt
    if trial.purge_after is not None:
        least, root = trial.purge_after, lambda held: 0
    with patch.object(closed_keys, "_LEAST_CLOSINGS", least), patch.object(closed_keys, "isqrt", root):
        for batch in range(trial.seconds * SECOND_US // _BATCH_US):
            parts = {i: _part(table, batch) for i, table in tables.items()}
            outcome.pairs.append(0)
            outcome.announced.append(0)
            began = time.process_time()
            runner.step({i: part for i, part in parts.items() if part.num_rows}, [plan] if not batch else [])
            outcome.cpu_s += time.process_time() - began
            _look(runner, outcome)
    return outcome


def _part(table: pa.Table, batch: int) -> pa.Table:
    numbers = table.column("batch").to_numpy()
    start, end = np.searchsorted(numbers, (batch, batch + 1))
    return table.slice(start, end - start).drop_columns("batch").combine_chunks()


def _look(runner: Runner, outcome: Outcome) -> None:
    """Count live and stored rows."""
    live, held = [], 0
    for side, other in (("a", "b"), ("b", "a")):
        rows = 0
        for bucket in runner.state:
            for joins in bucket.families.values():
                closed = joins.closed.get(other)
                for _, of, _, state in joins.slices():
                    for segment in state.segments if of == side else ():
                        held += len(segment)
                        dead = (
                            0
                            if closed is None
                            else int(closed.closed(segment, joins.family.layouts[side]).sum())
                        )
                        rows += len(segment) - dead
        live.append(rows)
    outcome.live.append((live[0], live[1]))
    outcome.held.append(held)


def mean(trial: Trial, seeds: int, measure: Callable[[Outcome], float]) -> float:
    """Return the average of a measure over seeds."""
    return float(np.mean([measure(run(trial, seed)) for seed in range(seeds)]))


def ratio(trial: Trial, seeds: int, measure: Callable[[Outcome], float] = Outcome.state) -> float:
    """Return a measure with punctuations, relative to that without."""
    return mean(trial, seeds, measure) / mean(replace(trial, promises=False), seeds, measure)


def pwjoin_8(seeds: int) -> dict[str, Any]:
    """State relative to WJoin's, by window."""
    source = Source(100)
    return {f"{w} s": round(ratio(Trial(source, source, (w, w)), seeds), 3) for w in (1, 5, 15)}


def pwjoin_9(seeds: int) -> dict[str, Any]:
    """CPU time relative to WJoin's, by window."""
    source = Source(100)
    return {
        f"{w} s": round(ratio(Trial(source, source, (w, w)), seeds, lambda o: o.cpu_s), 3) for w in (1, 5, 15)
    }


def pwjoin_10(seeds: int) -> dict[str, Any]:
    """CPU time relative to WJoin's where all punctuations are irrelevant."""
    source = Source(30, on="other")
    return {"cpu": round(ratio(Trial(source, source, (1, 1)), seeds, lambda o: o.cpu_s), 3)}


def pwjoin_11(seeds: int) -> dict[str, Any]:
    """Result punctuations in 60 s, with windows and without."""
    trial = Trial(Source(30), Source(30, shuffled=True), (1, 1))
    unbounded = replace(trial, windows_s=(None, None))
    count: Callable[[Outcome], float] = lambda o: sum(o.announced)  # noqa: E731  # a measure
    return {"PWJoin": mean(trial, seeds, count), "PJoin": mean(unbounded, seeds, count)}


def pwjoin_12(seeds: int) -> dict[str, Any]:
    """Result punctuations per second where a has no punctuations."""
    trial = Trial(Source(None), Source(30), (5, 5))
    unbounded = replace(trial, windows_s=(None, None))
    return {
        "PWJoin": round(mean(trial, seeds, Outcome.per_second), 2),
        "PJoin": round(mean(unbounded, seeds, Outcome.per_second), 2),
    }


def _pjoin(a: float, b: float, **facts: Any) -> Trial:
    return Trial(Source(a), Source(b), (None, None), seconds=30, gap_ms=2, **facts)


def pjoin_5(seeds: int) -> dict[str, Any]:
    """State relative to XJoin's, by rows between two punctuations."""
    return {str(s): round(ratio(_pjoin(s, s), seeds), 4) for s in (10, 20, 30, 40)}


def pjoin_7(seeds: int) -> dict[str, Any]:
    """Pairs of the last third relative to those of the first third, as output per second of event time."""

    def steadiness(outcome: Outcome) -> float:
        third = len(outcome.pairs) // 3
        return sum(outcome.pairs[-third:]) / sum(outcome.pairs[:third])

    trial = _pjoin(10, 10)
    return {
        "PJoin": round(mean(trial, seeds, steadiness), 3),
        "XJoin": round(mean(replace(trial, promises=False), seeds, steadiness), 3),
    }


def pjoin_8(seeds: int) -> dict[str, Any]:
    """Stored rows, dead ones included, and CPU seconds of PJoin-n."""
    found: dict[str, Any] = {}
    for purge_after in (1, 10, 100, 400, 800):
        outcomes = [run(_pjoin(10, 10, purge_after=purge_after), seed) for seed in range(seeds)]
        held = float(np.mean([np.mean(outcome.held) for outcome in outcomes]))
        found[str(purge_after)] = {
            "held": round(held, 1),
            "cpu_s": round(float(np.mean([outcome.cpu_s for outcome in outcomes])), 3),
        }
    return found


def pjoin_10(seeds: int) -> dict[str, Any]:
    """State of each side relative to XJoin's where b has fewer punctuations than a."""
    return {
        str(b): {
            side: round(ratio(_pjoin(10, b), seeds, lambda o, n=number: o.state(n)), 3)  # type: ignore[misc]
            for number, side in enumerate("ab")
        }
        for b in (20, 30, 40)
    }


def pjoin_14(seeds: int) -> dict[str, Any]:
    """Result punctuations per second, of all and of the first half."""
    trial = _pjoin(40, 40)

    def first_half(outcome: Outcome) -> float:
        half = len(outcome.announced) // 2
        return sum(outcome.announced[:half]) / (half * _BATCH_US / SECOND_US)

    return {
        "per second": round(mean(trial, seeds, Outcome.per_second), 2),
        "first half": round(mean(trial, seeds, first_half), 2),
    }


EXPERIMENTS: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "pwjoin-8": pwjoin_8,
    "pwjoin-9": pwjoin_9,
    "pwjoin-10": pwjoin_10,
    "pwjoin-11": pwjoin_11,
    "pwjoin-12": pwjoin_12,
    "pjoin-5": pjoin_5,
    "pjoin-7": pjoin_7,
    "pjoin-8": pjoin_8,
    "pjoin-10": pjoin_10,
    "pjoin-14": pjoin_14,
}


def main(
    seeds: Annotated[int, typer.Option(help="Runs of each trial.")] = 10,
    only: Annotated[list[str], typer.Option(help="Experiments; all by default.")] = [],  # noqa: B006  # typer's
    out: Annotated[Path, typer.Option(help="Directory of punctuations.json.")] = Path("docs/bench"),
) -> None:
    """Run experiments and write what they give."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / "punctuations.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    names: Sequence[str] = only or list(EXPERIMENTS)
    for name in names:
        found[name] = {"seeds": seeds, "found": EXPERIMENTS[name](seeds)}
        print(name, json.dumps(found[name]))
        file.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
