"""Measuring: median times of calls, of stages, and of the batches of ``tests.pipeline``."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.pipeline import Ran


@dataclass(slots=True)
class Stages:
    """Time of stages, a figure for every time that one was gone through.

    Attributes:
        clock_s: What is taken, by default CPU time of this process.
        taken_ms: Figures by stage.
    """

    clock_s: Callable[[], float] = time.process_time
    taken_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Note what the block takes."""
        began_s = self.clock_s()
        try:
            yield
        finally:
            self.taken_ms[stage].append((self.clock_s() - began_s) * 1e3)

    def median_ms(self, stage: str) -> float:
        """Return the median of a stage."""
        return statistics.median(self.taken_ms[stage])


@dataclass(frozen=True, slots=True)
class Batches:
    """What a plan did in all batches of a race.

    Attributes:
        cpu_ms: CPU time of a batch, median over the turns that count.
        held: Rows held at the end.
        stored: Pairs written.
        results: Results by query.
    """

    cpu_ms: float
    held: int
    stored: int
    results: Counter[int]

    @classmethod
    def of(cls, ran: Sequence[Ran], first: int, turn: int = 1) -> Batches:
        """Sum up batches; times count from batch ``first`` on, as means of turns of so many batches."""
        turns = [ran[start : start + turn] for start in range(first, len(ran), turn)]
        return cls(
            cpu_ms=1e3 * statistics.median(sum(b.cpu_s for b in some) / len(some) for some in turns),
            held=ran[-1].state_rows,
            stored=sum(batch.pairs for batch in ran),
            results=sum((batch.results for batch in ran), Counter()),
        )
