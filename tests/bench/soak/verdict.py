"""The verdict: what a figure held in the last ten minutes against the first ten after the warm-up.

|  0-10  | 10-20  | 20-30  | 30-40  | 40-50  | 50-60  |    medians of each figure
  warm-up           first                      last
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.bench.soak.load import read_posted
from tests.bench.soak.readers import read_pairs
from tests.bench.soak.rows import STREAMS

#: What a figure may grow by.
SHARE = 0.05
#: And by so much besides, since a few handles or a megabyte are no trend.
_GRAINS = {"bytes": 2**20, "": 2}
#: Figures of which each batch that is kept has its part. How many batches come depends on what else the
#: machine does, so these are judged per batch that is kept.
_OF_BATCHES = (
    "results files",
    "results files_bytes",
    "checkpoint/state files",
    "checkpoint/state files_bytes",
    "catalog.db used_bytes",
)
#: Files of dropped batches are unlinked so much later.
_UNLINKED_AFTER_S = 60.0
_OF_EACH = "of each batch:"
#: The size of a database is the most that it ever had in use.
_HIGH_WATER = ("catalog.db bytes", "events.db bytes")
#: Figures that are no amounts held: they add up, or are of the machine.
_NOT_HELD = ("cpu_s", "at_s", "load", "rss_bytes")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of wall clock, seconds.

    Attributes:
        from_s: Its begin.
        to_s: Its end.
    """

    from_s: float
    to_s: float

    def holds(self, at_s: np.ndarray) -> np.ndarray:
        """Tell of each time whether it is within."""
        within: np.ndarray = (self.from_s <= at_s) & (at_s < self.to_s)
        return within


@dataclass(frozen=True, slots=True)
class Change:
    """A figure in the course of a soak.

    Attributes:
        name: The figure; bytes, counts, or seconds, as its name says.
        medians: Its median in each stretch.
        after: Index of the first stretch after the warm-up.
        judged: Whether it must not grow.
    """

    name: str
    medians: tuple[float, ...]
    after: int = 0
    judged: bool = True

    @property
    def first(self) -> float:
        """Median after the warm-up."""
        return self.medians[self.after]

    @property
    def last(self) -> float:
        """Median at the end."""
        return self.medians[-1]

    @property
    def share(self) -> float:
        """What it changed by, as a share of the first; 0 of nothing."""
        return (self.last - self.first) / self.first if self.first else 0.0

    @property
    def grew(self) -> bool:
        """Tell whether it grew by more than is let pass."""
        if not self.judged:
            return False
        if self.name.endswith("_s"):
            return self.last > self.first * (1 + SHARE)
        grain = _GRAINS["bytes" if self.name.endswith("bytes") else ""]
        grain = 0 if self.name.startswith(_OF_EACH) else grain
        return self.last > self.first * (1 + SHARE) + grain


@dataclass(frozen=True, slots=True)
class Minute:
    """A minute under load.

    Attributes:
        number: From 0.
        rows_per_s: Rows committed per second, both streams.
        batches: Batches committed.
        results: Results whose latency was measured.
        p50_s: Median latency.
        p99_s: 99th percentile.
        post_p99_s: 99th percentile of the time until a request was acknowledged.
        private_bytes: Private memory of all processes.
        load: Load of the machine.
    """

    number: int
    rows_per_s: float
    batches: int
    results: int
    p50_s: float
    p99_s: float
    post_p99_s: float
    private_bytes: float
    load: float


def minutes(
    directory: Path,
    start_s: float,
    duration_s: int,
    followed: Iterable[str],
    samples: Sequence[Mapping[str, float]],
    batches: Sequence[Mapping[str, float]],
) -> list[Minute]:
    """Return what each minute was like.

    Latency is from the time the request with the later of a result's rows was sent until the result was read.

    Args:
        directory: Of what was recorded.
        start_s: When the load began.
        duration_s: How long it lasted.
        followed: Queries whose results were read as they came.
        samples: What the sampler saw.
        batches: Batches.
    """
    posted = {name: read_posted(directory, name) for name in STREAMS}
    pairs = np.concatenate([read_pairs(directory, name) for name in followed])
    sent_us = [
        posted[stream]["sent_us"][np.searchsorted(posted[stream]["end"], pairs[column], side="right")]
        for stream, column in zip(STREAMS, ("a", "b"), strict=True)
    ]
    read_s = pairs["read_us"] / 1e6
    latency_s = read_s - np.maximum(*sent_us) / 1e6
    requests = np.concatenate(list(posted.values()))
    request_s = requests["sent_us"] / 1e6
    took_s = (requests["acknowledged_us"] - requests["sent_us"]) / 1e6
    committed_s = np.array([batch["committed_us"] for batch in batches]) / 1e6
    rows = np.array([batch["rows"] for batch in batches])
    sampled_s = np.array([sample["at_s"] for sample in samples])
    found = []
    for number in range(duration_s // 60):
        within = Stretch(start_s + 60 * number, start_s + 60 * (number + 1))
        looked = [samples[i] for i in np.flatnonzero(within.holds(sampled_s)).tolist()]
        latencies_s = latency_s[within.holds(read_s)]
        found.append(
            Minute(
                number=number,
                rows_per_s=float(rows[within.holds(committed_s)].sum() / 60),
                batches=int(within.holds(committed_s).sum()),
                results=len(latencies_s),
                p50_s=_quantile(latencies_s, 0.5),
                p99_s=_quantile(latencies_s, 0.99),
                post_p99_s=_quantile(took_s[within.holds(request_s)], 0.99),
                private_bytes=_median([sample["all private_bytes"] for sample in looked]),
                load=_median([sample["load"] for sample in looked]),
            )
        )
    return found


def changes(
    samples: Sequence[Mapping[str, float]],
    batches: Sequence[Mapping[str, float]],
    by_minute: Sequence[Minute],
    start_s: float,
    retention_s: float,
    stretches: Sequence[Stretch],
    after: int,
) -> list[Change]:
    """Return every figure in each stretch.

    Args:
        samples: What the sampler saw.
        batches: Batches.
        by_minute: Minutes under load.
        start_s: When the load began.
        retention_s: How long results are kept.
        stretches: Stretches of time, one after the other.
        after: Index of the first one after the warm-up.
    """

    def change(name: str, at_s: np.ndarray, values: np.ndarray, *, judged: bool = True) -> Change:
        medians = tuple(_median(values[stretch.holds(at_s)]) for stretch in stretches)
        return Change(name, medians, after, judged)

    found = []
    names = sorted({name for sample in samples for name in sample if not name.endswith(_NOT_HELD)})
    at_s = np.array([sample["at_s"] for sample in samples])
    committed_s = np.array([batch["committed_us"] for batch in batches]) / 1e6
    kept = np.searchsorted(committed_s, at_s) - np.searchsorted(
        committed_s, at_s - retention_s - _UNLINKED_AFTER_S
    )
    found.append(change("batches kept", at_s, kept, judged=False))
    for name in names:
        values = np.array([sample.get(name, 0.0) for sample in samples])
        judged = name not in _OF_BATCHES + _HIGH_WATER
        found.append(change(name, at_s, values, judged=judged))
        if name in _OF_BATCHES:
            of_each = values / np.maximum(kept, 1)
            found.append(change(f"{_OF_EACH} {name}", at_s, of_each))
    for name in ("state_rows", "state_bytes", "segments"):
        values = np.array([batch[name] for batch in batches])
        found.append(change(name, committed_s, values))
    at_s = start_s + 60.0 * np.array([minute.number for minute in by_minute])
    for name in ("p50_s", "p99_s", "post_p99_s"):
        values = np.array([getattr(minute, name) for minute in by_minute])
        found.append(change(f"latency {name}", at_s, values))
    return found


def _median(values: Sequence[float] | np.ndarray) -> float:
    return float(np.median(values)) if len(values) else 0.0


def _quantile(values: np.ndarray, share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else 0.0
