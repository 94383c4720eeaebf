"""The verdict: figures of the last ten minutes compared with the first ten after the warm-up.

|  0-10  | 10-20  | 20-30  | 30-40  | 40-50  | 50-60  |    medians of each figure
  warm-up           first                      last
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

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
_KEPT = "batches kept"
#: The size of a database is the most that it ever had in use.
_NOT_JUDGED = (_KEPT, *_OF_BATCHES, "catalog.db bytes", "events.db bytes")
#: Figures that are no amounts held: they add up, or are of the machine.
_NOT_HELD = ("cpu_s", "at_s", "load", "rss_bytes")


def minutes(
    directory: Path,
    start_s: float,
    duration_s: int,
    followed: Iterable[str],
    samples: pd.DataFrame,
    batches: pd.DataFrame,
) -> pd.DataFrame:
    """Return the figures of each minute: rates, latencies, time of requests, private memory, load.

    Latency is from the time the request with the later of a result's rows was sent until the result was read.

    Args:
        directory: Of what was recorded.
        start_s: When the load began.
        duration_s: How long it lasted.
        followed: Queries whose results were read as they came.
        samples: What the sampler saw.
        batches: Batches.
    """

    def grouped(values: pd.DataFrame | pd.Series, at_s: np.ndarray | pd.Series):
        return values.groupby(np.floor((np.asarray(at_s) - start_s) / 60).astype(int))

    posted = {name: read_posted(directory, name) for name in STREAMS}
    pairs = np.concatenate([read_pairs(directory, name) for name in followed])
    sent_us = [
        posted[stream]["sent_us"][np.searchsorted(posted[stream]["end"], pairs[column], side="right")]
        for stream, column in zip(STREAMS, ("a", "b"), strict=True)
    ]
    read_s = pairs["read_us"] / 1e6
    latencies = grouped(pd.Series(read_s - np.maximum(*sent_us) / 1e6), read_s)
    requests = pd.DataFrame(np.concatenate(list(posted.values())))
    took_s = (requests["acknowledged_us"] - requests["sent_us"]) / 1e6
    committed = grouped(batches, batches["committed_us"] / 1e6)
    looked = grouped(samples, samples["at_s"])
    found = {
        "rows_per_s": committed["rows"].sum() / 60,
        "batches": committed.size(),
        "results": latencies.size(),
        "p50_s": latencies.quantile(0.5),
        "p99_s": latencies.quantile(0.99),
        "post_p99_s": grouped(took_s, requests["sent_us"] / 1e6).quantile(0.99),
        "private_bytes": looked["all private_bytes"].median(),
        "load": looked["load"].median(),
    }
    return pd.DataFrame(found).reindex(range(duration_s // 60)).fillna(0.0)


def changes(
    samples: pd.DataFrame,
    batches: pd.DataFrame,
    by_minute: pd.DataFrame,
    start_s: float,
    retention_s: float,
    stretch_s: float,
    count: int,
) -> pd.DataFrame:
    """Return the median of every figure, a row each, in each of so many stretches of time.

    Args:
        samples: What the sampler saw.
        batches: Batches.
        by_minute: Minutes under load.
        start_s: When the load began.
        retention_s: How long results are kept.
        stretch_s: Length of a stretch.
        count: Number of stretches.
    """

    def medians(values: pd.DataFrame, at_s: np.ndarray) -> pd.DataFrame:
        of_stretch = values.groupby(np.floor((at_s - start_s) / stretch_s).astype(int)).median()
        return of_stretch.reindex(range(count)).fillna(0.0).T

    at_s, committed_s = samples["at_s"].to_numpy(), batches["committed_us"].to_numpy() / 1e6
    dropped_s = at_s - retention_s - _UNLINKED_AFTER_S
    kept = np.searchsorted(committed_s, at_s) - np.searchsorted(committed_s, dropped_s)
    figures: dict[str, np.ndarray | pd.Series] = {_KEPT: kept}
    for name in sorted(name for name in samples if not name.endswith(_NOT_HELD)):
        figures[name] = samples[name].fillna(0.0)
        if name in _OF_BATCHES:
            figures[f"{_OF_EACH} {name}"] = figures[name] / np.maximum(kept, 1)
    latency = by_minute[["p50_s", "p99_s", "post_p99_s"]].add_prefix("latency ")
    return pd.concat(
        [
            medians(pd.DataFrame(figures), at_s),
            medians(batches[["state_rows", "state_bytes", "segments"]], committed_s),
            medians(latency, start_s + 60.0 * by_minute.index.to_numpy()),
        ]
    )


def is_judged(name: str) -> bool:
    """Return whether a figure must not grow."""
    return name not in _NOT_JUDGED


def grew(name: str, first: float, last: float) -> bool:
    """Return whether a figure grew by more than is let pass; its name says whether it is bytes or seconds."""
    if not is_judged(name):
        return False
    unit = "bytes" if name.endswith("bytes") else ""
    grain = 0 if name.endswith("_s") or name.startswith(_OF_EACH) else _GRAINS[unit]
    return last > first * (1 + SHARE) + grain
