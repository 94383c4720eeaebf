"""One setting measured: the same rows through several plans, counted and timed in steady state.

    0 s ── state fills ── largest window ── measured ── end

Arrivals are Poisson. Every row has an event time, a key whose shares give S_1, and a value uniform in [0, 1),
so that ``v < S`` has selectivity S. Key, value and time of a row are independent, as are the streams.

A window that is still filling costs less than the paper's equations say, so nothing counts before the event
time of the largest window.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.values.plan import Plan
from planner.families.families import SIDES, side_chain
from tests.bench.paper.counted import counted_terms, expected_cost, operator_males_per_s
from tests.bench.paper.setting import BY_NAME, STREAMS, Setting, key_shares
from tests.pipeline import Ran, Rows, check_results, race

START_US = 1_700_000_000_000_000
SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """Rows of one stream.

    Attributes:
        ts: int64[n], µs after ``START_US``, ascending.
        k: int64[n], key.
        v: float64[n].
    """

    ts: np.ndarray[tuple[int], np.dtype[np.int64]]
    k: np.ndarray[tuple[int], np.dtype[np.int64]]
    v: np.ndarray[tuple[int], np.dtype[np.float64]]

    def table(self, from_s: float, to_s: float, *, positions: bool = True) -> pa.Table:
        """Return the rows that arrive in [from_s, to_s)."""
        low, high = np.searchsorted(self.ts, [round(from_s * SECOND_US), round(to_s * SECOND_US)])
        columns = {
            "ts": pa.array(START_US + self.ts[low:high], pa.timestamp("us")),
            "k": pa.array(self.k[low:high]),
            "v": pa.array(self.v[low:high]),
        }
        if positions:
            columns["_pos"] = pa.array(np.arange(low, high))
        return pa.table(columns)


def arrivals(stream: str, rate_per_s: float, join_selectivity: float, seconds: float, seed: int) -> Arrivals:
    """Draw the rows of a stream: the same for the same arguments, whatever the plan is that joins them."""
    rng = np.random.default_rng(
        [seed, zlib.crc32(stream.encode()), round(rate_per_s * 1000), round(join_selectivity * 1000)]
    )
    times = np.empty(0)
    while not len(times) or times[-1] < seconds:
        gaps = rng.exponential(1 / rate_per_s, max(16, round(rate_per_s * seconds)))
        times = np.concatenate([times, (times[-1] if len(times) else 0.0) + gaps.cumsum()])
    times = times[times < seconds]
    shares = key_shares(join_selectivity)
    keys = rng.choice(len(shares), len(times), p=shares).astype(np.int64)
    return Arrivals((times * SECOND_US).astype(np.int64), keys, rng.random(len(times)))


@dataclass(frozen=True, slots=True)
class Shape:
    """How a setting is measured.

    Attributes:
        seconds: Event time of the input.
        batch_s: Event time of a micro-batch.
        seed: Seed of the arrivals.
    """

    seconds: float = 45.0
    batch_s: float = 1.0
    seed: int = 2006


#: A row of the CSV files: what one plan did in one setting. Per second means second of event time.
Measurement = dict[str, Any]


def batches_of(setting: Setting, shape: Shape) -> list[list[Rows]]:
    """Return the input of a setting cut into micro-batches."""
    drawn = {
        name: arrivals(name, setting.arrivals_per_s, setting.join_selectivity, shape.seconds, shape.seed)
        for name in STREAMS
    }
    count = round(shape.seconds / shape.batch_s)
    return [
        [
            Rows(BY_NAME[name].id, rows.table(number * shape.batch_s, (number + 1) * shape.batch_s))
            for name, rows in drawn.items()
        ]
        for number in range(count)
    ]


def measure(setting: Setting, plans: Mapping[str, Plan], shape: Shape) -> list[Measurement]:
    """Run all plans over a setting's input and return what each did, in the order of the plans."""
    with tempfile.TemporaryDirectory(prefix="sluice-paper-") as directory:
        ran = race(plans, batches_of(setting, shape), Path(directory))
    check_results(ran)
    first = round(max(setting.windows_s) / shape.batch_s)
    return [_measurement(setting, shape, name, plan, ran[name][first:]) for name, plan in plans.items()]


def _measurement(
    setting: Setting, shape: Shape, name: str, plan: Plan, batches: Sequence[Ran]
) -> Measurement:
    seconds = len(batches) * shape.batch_s
    (family,) = plan.families
    terms = counted_terms(setting, plan, batches, shape.batch_s)
    expected = expected_cost(setting, plan, shape.batch_s)
    slices = [s for batch in batches for s in batch.slices]
    return {
        **setting.facts(),
        "strategy": name,
        "joins": len(family.joins),
        # Slices of side a, all joins together.
        "slices": sum(len(side_chain(join, SIDES[0])) for join in family.joins),
        # Held at the end of a batch, mean; by the paper's model.
        "state_rows": fmean([b.state_rows for b in batches]),
        "state_bytes": fmean([b.state_bytes for b in batches]),
        "expected_state_rows": expected.memory_rows,
        # Counted comparisons per second, by term and all together; by the paper's model.
        **{term: getattr(terms, term) for term in ("probe", "purge", "route", "union", "filter")},
        "comparisons": terms.total,
        "expected_comparisons": expected.comparisons,
        # Males times slices of their join, per second: what C_sys multiplies.
        "operator_males": operator_males_per_s(batches, shape.batch_s),
        # Pairs of equal key looked at, pairs written, results of all queries, per second.
        "touched": sum(s.touched for s in slices) / seconds,
        "pairs": sum(b.pairs for b in batches) / seconds,
        "results": sum(sum(b.results.values()) for b in batches) / seconds,
        "input_rows": sum(sum(b.input_rows.values()) for b in batches),
        "seconds": seconds,
        "batches": len(batches),
        "segments": sum(s.segments for s in slices) / len(batches),
        # Each batch taken as the median one: steady batches are alike, and what else the machine does for a
        # moment is none of theirs.
        "wall_s": len(batches) * median(b.wall_s for b in batches),
        "cpu_s": len(batches) * median(b.cpu_s for b in batches),
    }
