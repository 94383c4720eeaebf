"""Everything that is measured, and its JSON file; nothing in the report comes from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from tests.bench.reports import read_figures
from tests.bench.scaling.driver import Serial
from tests.bench.scaling.load import Case
from tests.bench.scaling.model import Shape

FILE = "scaling.json"
#: What is predicted: windows of so many batches, no columns carried along, so many pairs per row.
WINDOW, MATCHES = 6, 0.1


@dataclass(frozen=True, slots=True)
class Measured:
    """What a bench has measured.

    Attributes:
        machine: On what.
        conditions: Who else was at work, load before and after.
        own: Points in process.
        reports: Commits, by number of buckets.
        partitions: Planning of a batch's input, by number of pieces.
        seen: Phases of the job that constants are fitted to.
        checked: Phases of other masters.
    """

    machine: str
    conditions: str
    own: Sequence[Case]
    reports: Sequence[Serial]
    partitions: Sequence[Serial]
    seen: Sequence[Case]
    checked: Sequence[Case]


def read(out: Path) -> Measured:
    """Read what the report was written from."""
    facts = read_figures(out / FILE)
    for name in ("reports", "partitions"):
        facts[name] = [Serial(**s) for s in facts[name]]
    return Measured(**facts)


def shape_of(measured: Measured) -> Shape:
    """Return the shape of the load that is predicted: what a bucket holds, what is shuffled."""
    own, seen = pd.DataFrame(measured.own), pd.DataFrame(measured.seen)
    points = own[(own.window == WINDOW) & (own.carried == 0)]
    terms = np.column_stack([seen.rows, seen.rows * seen.carried, seen.partitions * seen.buckets])
    (per_row, _, per_payload), _ = nnls(terms / seen.shuffled_bytes.to_numpy()[:, None], np.ones(len(seen)))
    return Shape(
        matches=MATCHES,
        segments_per_bucket=float((points.segments / points.buckets).median()),
        bytes_per_row=float(per_row),
        bytes_per_payload=float(per_payload),
    )


def slope(measured: Sequence[Serial]) -> float:
    """Return what one more costs, seconds, between the fewest and the most."""
    few, many = min(measured, key=lambda s: s.count), max(measured, key=lambda s: s.count)
    return (many.cpu_s - few.cpu_s) / (many.count - few.count) if many.count > few.count else 0.0


def bucket_deviation(measured: Measured) -> float:
    """Return how much buckets of a batch differ, relative to the mean; from the hottest of the most buckets.

    The largest of n is about sqrt(2 ln n) standard deviations above the mean.
    """
    seen = pd.DataFrame(measured.seen)
    large = seen[seen.rows >= seen.rows.max() / 2]
    most = large.buckets.max()
    hottest = large[large.buckets == most].hottest.median()
    return float((hottest - 1.0) / np.sqrt(2.0 * np.log(max(most, 2))))
