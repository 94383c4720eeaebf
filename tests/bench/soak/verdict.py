"""The verdict: figures of the last ten minutes compared with the first ten after the warm-up.

|  0-10  | 10-20  | 20-30  | 30-40  | 40-50  | 50-60  |    medians of each figure
  warm-up           first                      last
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tests.bench.feeding import latencies_s
from tests.bench.reports import table
from tests.bench.soak.soak import FOLLOWED, RETENTION_S, Soaked

#: What a figure may grow by.
SHARE = 0.05
#: And by so much besides, since a few handles or a megabyte are not a trend.
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
#: The size of a database is the most that it ever had in use; the load is the machine's.
_NOT_JUDGED = (_KEPT, *_OF_BATCHES, "catalog.db bytes", "events.db bytes", "load")


def stretches(soaked: Soaked, stretch_s: float) -> pd.DataFrame:
    """Return the median of every figure, a row each, in each whole stretch of time under load."""
    start_s = soaked.rows.start_us / 1e6
    ended_s = max(posted["acknowledged_us"][-1] for posted in soaked.posted.values()) / 1e6

    def of_each(values: pd.DataFrame, at_s: np.ndarray | pd.Series, part: float = 0.5) -> pd.DataFrame:
        return values.groupby(np.floor((np.asarray(at_s) - start_s) / stretch_s).astype(int)).quantile(part)

    samples, batches = soaked.samples.fillna(0.0), soaked.batches
    at_s = samples.pop("at_s").to_numpy()
    kept = np.searchsorted(batches["at_s"], at_s)
    kept -= np.searchsorted(batches["at_s"], at_s - RETENTION_S - _UNLINKED_AFTER_S)
    samples[_KEPT] = kept
    for name in _OF_BATCHES:
        if name in samples:
            samples[f"{_OF_EACH} {name}"] = samples[name] / np.maximum(kept, 1)
    pairs = np.concatenate([soaked.pairs[name] for name in FOLLOWED])
    requests = pd.DataFrame(np.concatenate([*soaked.posted.values()]))
    latency = pd.DataFrame({"s": latencies_s(pairs, soaked.posted)})
    request = pd.DataFrame({"s": (requests["acknowledged_us"] - requests["sent_us"]) / 1e6})
    found = [
        of_each(samples.sort_index(axis=1), at_s),
        of_each(batches[["state_rows", "state_bytes", "segments"]], batches["at_s"]),
        of_each(latency, pairs["read_us"] / 1e6).set_axis(["latency p50_s"], axis=1),
        of_each(latency, pairs["read_us"] / 1e6, 0.99).set_axis(["latency p99_s"], axis=1),
        of_each(request, requests["sent_us"] / 1e6, 0.99).set_axis(["request p99_s"], axis=1),
    ]
    return pd.concat(found, axis=1).reindex(range(round((ended_s - start_s) / stretch_s))).fillna(0.0).T


def grew(name: str, first: float, last: float) -> bool:
    """Return whether a figure grew by more than is let pass; its name says whether it is bytes or seconds."""
    unit = "bytes" if name.endswith("bytes") else ""
    grain = 0 if name.endswith("_s") or name.startswith(_OF_EACH) else _GRAINS[unit]
    return name not in _NOT_JUDGED and last > first * (1 + SHARE) + grain


def verdict(figures: pd.DataFrame, stretch_s: float, warm_up: int) -> tuple[str, list[str]]:
    """Return a table of all figures, and the names of those that grew, none where the run was too short."""
    judged = len(figures.columns) >= warm_up + 2
    lines, grown = [], []
    for name, *medians in figures.itertuples():
        first, last = medians[min(warm_up, len(medians) - 1)], medians[-1]
        mark = ""
        if judged and grew(name, first, last):
            grown.append(name)
            mark = " (grew)"
        elif name in _NOT_JUDGED:
            mark = " (not judged)"
        share = (last - first) / first if first else 0.0
        lines.append((name.removesuffix("_bytes"), *_scaled(name, medians), f"{share:+.1%}{mark}"))
    header = ("figure", *(f"from {n * stretch_s / 60:g} min" for n in figures.columns), "change")
    return table(header, lines), grown


def _scaled(name: str, medians: list[float]) -> list[object]:
    """Return medians in MB where they are bytes, of each batch in kB."""
    if not name.endswith("bytes"):
        return [*medians]
    unit, scale = ("kB", 1e-3) if name.startswith(_OF_EACH) else ("MB", 1e-6)
    return [f"{median * scale:,.1f} {unit}" for median in medians]
