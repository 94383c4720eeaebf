"""Runs of the same put together: medians of rates, and of ratios that were each taken within one run.

A frame of runs has a row for each measurement, with its rates as ``rates.job`` and the like, and those of
Sluice in the same run, over the same rows, as ``sluice.job``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields

import pandas as pd

from tests.bench.peers.measurement import Measurement, Rates
from tests.bench.peers.peers import PEERS, REFERENCE
from tests.bench.peers.workloads import WORKLOADS

KINDS = tuple(field.name for field in fields(Rates))
#: Workload, scale, and whether it was the small form.
Key = tuple[str, float, bool]


def frame(measured: Iterable[Measurement]) -> pd.DataFrame:
    """Return runs of workloads and peers that there are, in the order of the report."""
    rows = []
    for m in measured:
        rates = {
            f"{of}.{kind}": getattr(getattr(m, of), kind) for of in ("rates", "sluice") for kind in KINDS
        }
        if m.workload in WORKLOADS and m.peer in PEERS:
            rows.append(asdict(m) | rates | {"_peer": list(PEERS).index(m.peer), "_less": -m.share})
    numbers = ["batch_p50_s", "batch_p99_s", "state_rows", "state_bytes", "peak_bytes"]
    numbers += [f"{of}.{kind}" for of in ("rates", "sluice") for kind in KINDS]
    names = [field.name for field in fields(Measurement)]
    columns = dict.fromkeys([*names, *numbers, "_peer", "_less"])
    return pd.DataFrame(rows, columns=list(columns)).astype(dict.fromkeys(numbers, float))


def sections(runs: pd.DataFrame) -> Iterator[tuple[Key, pd.DataFrame]]:
    """Yield the runs of each workload at each scale: whole forms before small ones, larger scales first."""
    grouped = {(*key,): own for key, own in runs.groupby(["workload", "scale", "quick"])}
    names = list(WORKLOADS)
    for key in sorted(grouped, key=lambda key: (names.index(key[0]), key[2], -key[1])):
        yield key, grouped[key]


def rows_of(runs: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the runs of each peer over each part of the rows, larger parts first."""
    for _, own in runs.groupby(["_peer", "_less"]):
        yield own.sort_values("run")


def good(runs: pd.DataFrame, peer: str, share: float | None = None) -> pd.DataFrame:
    """Return the runs of a peer with the right results, over its largest part of the rows or a given one."""
    own = runs[(runs["peer"] == peer) & (runs["error"] == "")]
    return own[own["share"] == (own["share"].max() if share is None else share)]


def median(values: pd.Series) -> float | None:
    """Return the median, or None where there is no value or one is missing."""
    found = values.median(skipna=False)
    return None if pd.isna(found) else float(found)


def times(row: pd.DataFrame, kind: str) -> float | None:
    """Return how many times faster Sluice was in the same runs."""
    return median(row[f"sluice.{kind}"] / row[f"rates.{kind}"])


def times_of(mine: pd.DataFrame, other: pd.DataFrame, kind: str, own: str = "") -> float | None:
    """Return how many times faster a peer is than another, the median over the runs that have both.

    What Sluice did in its run is kept with each measurement, also when Sluice was measured again since.

    Args:
        mine: Good runs of the one.
        other: Good runs of the other.
        kind: Which of its rates is compared.
        own: With which of the first one's; left out, the same one.
    """
    if mine.empty or other.empty:
        return None
    own = own or kind
    same = mine["share"].iloc[0] == other["share"].iloc[0]
    if same and mine["peer"].iloc[0] == REFERENCE.name:
        ratios = other[f"sluice.{own}"] / other[f"rates.{kind}"]
    elif same and other["peer"].iloc[0] == REFERENCE.name:
        ratios = mine[f"rates.{own}"] / mine[f"sluice.{kind}"]
    else:
        both = mine.merge(other, on=["bench", "run"])
        ratios = both[f"rates.{own}_x"] / both[f"rates.{kind}_y"]
    return median(ratios.dropna())


def best(runs: pd.DataFrame, peers: Sequence[str]) -> pd.DataFrame | None:
    """Return the good runs of the fastest of some peers, each over the largest part that it was given.

    That is not the one that Sluice beats by least: over the few rows that a slow peer is given, Sluice's own
    time is mostly its start.
    """
    rows = [row for name in peers if times(row := good(runs, name), "job") is not None]
    return max(rows, key=lambda row: median(row["rates.job"]) or 0.0, default=None)
