"""Query 1 and Query 2 of WO-Join, run by the operators.

    Query 1   J(S1, S2, S3)      S2 comes at an eighth of its rate from 10 s to 40 s, and then catches up; S3
                                 comes at eight times its rate from 80 s to 90 s
    Query 2   J3(S7 = J1(S1, S2, S3), S8 = J2(S4, S5, S6))      S7 is held back like S2

Here Query 2 is made of three queries, so that the input of J3 can be slowed and predicted; ``one_plan`` runs
it as one. The results of J1 and J2 come to J3 as streams: each at the moment when its last row came, or,
where rows are sorted, at the end of the batch that gives it out, by value. They come in the order of the
value with a factor that is found from all of them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from catalog.values.control import Heartbeat
from catalog.values.plan import FamilyPlan
from catalog.values.policies.memory import Memory
from catalog.values.stream import Order
from operators.kernels.keys import Int64s
from operators.orders.order_progress import scrambling_factor
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.families.families import SIDES, SideName, side_stream
from planner.orders.buffers import OrderedStream, buffer_rows
from planner.orders.lag import lag
from tests.bench.oblivious.arriving import Arriving, arriving, held_back, rows_of
from tests.builders import SECOND_US
from tests.operators.harness import Runner
from tests.operators.test_orders import ordered_stream, saving

NAMES = "ABC"
#: Rows of one value in each stream.
MULTIPLICITY = 2

Name = TypeVar("Name", int, str)


@dataclass(slots=True)
class Run:
    """A join of two or three streams.

    Attributes:
        held: Rows in memory at the end of each batch, by the number of the stream; rows that the first of two
            steps has made count as stream -1.
        results: Number of results.
        late_s: Sum over all results of the time between the arrival of their last row and their output, which
            comes after the CPU time of their batch.
        made: The results as a stream, in order of their output.
    """

    held: list[Counter[int]] = field(default_factory=list)
    results: int = 0
    late_s: float = 0.0
    made: Arriving = field(default_factory=lambda: Arriving(np.zeros(0, np.int64), np.zeros(0)))

    def peak(self, streams: Sequence[int]) -> int:
        """Return the most rows of some streams together."""
        return max(sum(held[n] for n in streams) for held in self.held)

    def mean(self, streams: Sequence[int]) -> float:
        """Return the mean rows of some streams together."""
        return float(np.mean([sum(held[n] for n in streams) for held in self.held]))


def run_join(
    drawn: Sequence[Arriving],
    scrambles: Sequence[int | None],
    memory: Memory,
    end_s: int,
    *,
    batch_s: float = 1.0,
    window_s: float | None = None,
) -> Run:
    """Join streams by their values.

    Args:
        drawn: Two or three streams.
        scrambles: Their scrambling factors; None: they are monitored.
        memory: Where rows wait.
        end_s: End of the run.
        batch_s: Length of a batch.
        window_s: Window of each stream; None: joined by their order.
    """
    streams = {
        n: replace(ordered_stream(n, NAMES[n - 1], "bigint", Order("e", scramble)), lateness_us=0)
        for n, scramble in enumerate(scrambles, 1)
    }
    window = "" if window_s is None else f"[RANGE {round(window_s * 1000)} MILLISECONDS]"
    sources = ", ".join(f"{NAMES[n - 1]} {window} {NAMES[n - 1].lower()}" for n in streams)
    text = f"SELECT a.v AS v FROM {sources} WHERE a.e = b.e{' AND b.e = c.e' if len(drawn) == 3 else ''}"
    query = bind(text, {s.name: s for s in streams.values()}, name="q", query_id=1)
    plan = saving(build_plan([query], streams), memory)
    last = next(family for family in plan.families if len(drawn) == 2 or family.stream_a < 0)
    runner, run = Runner(streams), Run()
    values: list[Int64s] = []
    times: list[Int64s] = []
    for batch in range(round(end_s / batch_s)):
        tables = {
            n: rows_of(streams[n], of, of.before(batch * batch_s), of.before((batch + 1) * batch_s))
            for n, of in enumerate(drawn, 1)
        }
        cpu_s = time.process_time()
        (output,) = runner.step(tables, [plan] if batch == 0 else [])
        cpu_s = time.process_time() - cpu_s
        run.held.append(held_rows(runner, _stream_of))
        if (found := output.results.get(last.id)) is None:
            continue
        made = drawn[last.stream_b - 1].values[found.column("_pos_b").to_numpy()]
        came = found.column("_event_time").cast("int64").to_numpy() / SECOND_US
        out_s = (batch + 1) * batch_s
        run.late_s += float((out_s + cpu_s - came).sum())
        if memory.sorts:
            came = np.full(len(made), out_s - 1e-3)
        order = np.lexsort((made, came))
        values.append(made[order])
        times.append(came[order])
    # What waits in sorting is joined once its stream is idle.
    nothing = {n: rows_of(streams[n], of, 0, 0) for n, of in enumerate(drawn, 1)}
    runner.step(nothing, heartbeats=[Heartbeat(n, end_s * SECOND_US) for n in streams])
    run.results = sum(runner.results.values())
    run.made = Arriving(np.concatenate(values), np.concatenate(times))
    return run


def held_rows(runner: Runner, made_by: Callable[[FamilyPlan, SideName], Name]) -> Counter[Name]:
    """Return the rows held in memory, by the name that ``made_by`` gives the rows of a family's side."""
    (bucket,) = runner.state
    held = Counter[Name]()
    for joins in bucket.families.values():
        of = {side: made_by(joins.family.plan, side) for side in SIDES}
        for _, side, _, state in joins.slices():
            held[of[side]] += state.rows
        for side, waiting in joins.sorting.items():
            held[of[side]] += waiting.rows
        for side, parked in joins.parked.items():
            # Segments that are not stored here are closed where they are.
            held[of[side]] += parked.tail.rows
    return held


def _stream_of(family: FamilyPlan, side: SideName) -> int:
    """Return the stream of a side; -1 stands for the pairs of the first step."""
    return max(side_stream(family, side), -1)


def query_1_streams(seed: int, end_s: int, *, disturbed: bool = True) -> list[Arriving]:
    """Draw S1 to S3, with S2 slow and S3 in a burst if they are to be disturbed."""
    random = np.random.default_rng(seed)
    return [
        arriving(random, int(random.integers(0, 500)), disturbed and n == 1, disturbed and n == 2, end_s)
        for n in range(3)
    ]


def factors(streams: Sequence[Arriving]) -> list[int]:
    """Return the scrambling factors of whole streams."""
    return [scrambling_factor(stream.values) for stream in streams]


def predicted(
    drawn: Sequence[Arriving], known: Sequence[OrderedStream], end_s: int, *, recent: bool = True
) -> Int64s:
    """Return the rows of each stream by Equation 8 at the end of each second, int64[seconds, streams].

    Args:
        drawn: The streams.
        known: Facts of them.
        end_s: End of the run.
        recent: Whether rates are those in the time of the other stream's last k rows, instead of the known
            ones.
    """
    found = np.zeros((end_s, len(drawn)), dtype=np.int64)
    numbers = range(len(drawn))
    for second in range(end_s):
        if not all(stream.before(second + 1) for stream in drawn):
            continue
        for i in numbers:
            rows = [
                _predicted(drawn[i], known[i], drawn[j], known[j], second + 1, recent=recent)
                for j in numbers
                if j != i
            ]
            found[second, i] = round(max(rows))
    return found


def _predicted(
    own: Arriving,
    of_own: OrderedStream,
    other: Arriving,
    of_other: OrderedStream,
    at_s: float,
    *,
    recent: bool,
) -> float:
    """Return the rows that a stream holds for another one, by Equation 7.

    The row at the sorted place of the other stream's newest row may have come k rows before that row. The
    equation adds the lag at that moment to the rows that have come since, computed from the rates.
    """
    newest = other.before(at_s)
    arrived = max(newest - round(of_other.scramble) - 1, 1)
    came = own.before(float(other.times_s[arrived - 1]))
    if recent:
        since = max(own.before(at_s) - came, 1e-6)
        of_own = replace(of_own, rate_per_s=since)
        of_other = replace(of_other, rate_per_s=max(newest - arrived, 1))
    return buffer_rows(of_own, of_other, lag(own.values, came, other.values, arrived))


@dataclass(frozen=True, slots=True)
class Tree:
    """A run of Query 2.

    Attributes:
        leaves: J1 and J2.
        inputs: Streams of J1 and of J2.
        s7: Results of J1, held back.
        s8: Results of J2.
        root: J3.
    """

    leaves: tuple[Run, Run]
    inputs: tuple[Sequence[Arriving], Sequence[Arriving]]
    s7: Arriving
    s8: Arriving
    root: Run

    def rows(self) -> float:
        """Return the mean rows in memory of S1 to S8."""
        means = self.mean()
        return means["S1-S6"] + means["S7, S8"]

    def mean(self) -> Mapping[str, float]:
        """Return the mean rows in memory of S1 to S6, of S7 and S8, and of the pairs inside of J1 and J2."""
        return {
            "S1-S6": sum(leaf.mean((1, 2, 3)) for leaf in self.leaves),
            "S7, S8": self.root.mean((1, 2)),
            "pairs": sum(leaf.mean((-1,)) for leaf in self.leaves),
        }


def run_tree(seed: int, end_s: int, memory: Memory) -> Tree:
    """Run Query 2."""
    inputs = [query_1_streams(2 * seed + n, end_s, disturbed=False) for n in range(2)]
    leaves = [run_join(streams, factors(streams), memory, end_s) for streams in inputs]
    s7, s8 = (leaf.made for leaf in leaves)
    slowed = held_back(s7.times_s, end_s / len(s7.values))
    s7 = Arriving(s7.values[slowed < end_s], slowed[slowed < end_s])
    # What sorted steps make is in order already.
    above = Memory("dbf" if memory.parks else "plain", memory.read_ahead)
    root = run_join((s7, s8), factors((s7, s8)), above, end_s)
    return Tree((leaves[0], leaves[1]), (inputs[0], inputs[1]), s7, s8, root)
