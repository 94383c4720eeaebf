"""Everything that is measured, and its JSON file; nothing in the report comes from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from tests.bench.reports import read_figures
from tests.bench.scaling.driver import Serial
from tests.bench.scaling.in_process import Own
from tests.bench.scaling.in_spark import Phase, Seen, SparkRun
from tests.bench.scaling.load import Point
from tests.bench.scaling.model import Shape, load_seen

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
    own: tuple[Own, ...]
    reports: tuple[Serial, ...]
    partitions: tuple[Serial, ...]
    seen: tuple[Seen, ...]
    checked: tuple[Seen, ...]


def read(out: Path) -> Measured:
    """Read what the report was written from."""
    facts = read_figures(out / FILE)
    return Measured(
        machine=facts["machine"],
        conditions=facts["conditions"],
        own=tuple(Own(**(o | {"point": Point(**o["point"])})) for o in facts["own"]),
        reports=tuple(Serial(**s) for s in facts["reports"]),
        partitions=tuple(Serial(**s) for s in facts["partitions"]),
        seen=tuple(map(_seen, facts["seen"])),
        checked=tuple(map(_seen, facts["checked"])),
    )


def _seen(facts: dict[str, Any]) -> Seen:
    return Seen(**(facts | {"run": SparkRun(**facts["run"]), "phase": Phase(**facts["phase"])}))


def shape_of(measured: Measured) -> Shape:
    """Return the shape of the load that is predicted: what a bucket holds, what is shuffled."""
    points = [o for o in measured.own if o.point.batches_in_window == WINDOW and not o.point.columns]
    loads = [load_seen(s) for s in measured.seen]
    terms = np.array([[x.rows, x.rows * x.columns, x.partitions * x.buckets] for x in loads])
    sizes = np.array([x.shuffled_bytes for x in loads])
    (per_row, _, per_payload), _ = nnls(terms / sizes[:, None], np.ones(len(sizes)))
    return Shape(
        matches=MATCHES,
        segments_per_bucket=float(np.median([o.segments / o.point.buckets for o in points])),
        bytes_per_row=float(per_row),
        bytes_per_payload=float(per_payload),
    )


def slope(measured: tuple[Serial, ...]) -> float:
    """Return what one more costs, seconds, between the fewest and the most."""
    few, many = min(measured, key=lambda s: s.count), max(measured, key=lambda s: s.count)
    return (many.cpu_s - few.cpu_s) / (many.count - few.count) if many.count > few.count else 0.0


def bucket_deviation(measured: Measured) -> float:
    """Return how much buckets of a batch differ, relative to the mean; from the hottest of the most buckets.

    The largest of n is about sqrt(2 ln n) standard deviations above the mean.
    """
    rows = max(s.phase.batch_rows for s in measured.seen)
    large = [s for s in measured.seen if s.phase.batch_rows >= rows / 2]
    most = max(s.run.buckets for s in large)
    hottest = float(np.median([s.hottest for s in large if s.run.buckets == most]))
    return (hottest - 1.0) / float(np.sqrt(2.0 * np.log(max(most, 2))))
