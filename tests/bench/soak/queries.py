"""Queries of the soak: those that stand for its whole length, and those that visit.

Every query that enters with ``backfill: state`` has a window and filters within those of the standing
``WIDEST``. So each earlier row that it can use is held, and what it must give is simple to say: all its pairs
whose later row was processed while it was in force.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tests.bench.peers.workloads import Query

#: Window in seconds, filters on A.v and B.v: 50 to 150 results a second each at 10,000 rows/s and stream.
_STANDING = (
    *((0.5, 1.0, 1.0), (1.0, 1.0, 1.0), (1.5, 1.0, 1.0), (2.0, 0.5, 1.0), (5.0, 0.4, 0.5)),
    *((3.0, 0.6, 0.6), (10.0, 0.3, 0.3), (8.0, 0.5, 0.25), (15.0, 0.25, 0.25), (20.0, 0.2, 0.25)),
    *((15.0, 0.3, 0.2), (30.0, 0.2, 0.2), (30.0, 0.15, 0.2), (45.0, 0.15, 0.15), (60.0, 0.12, 0.15)),
    *((45.0, 0.2, 0.15), (60.0, 0.1, 0.2), (90.0, 0.1, 0.1), (90.0, 0.15, 0.1), (120.0, 0.1, 0.1)),
)
STANDING = {
    f"standing{n}": Query(f"standing{n}", round(window_s * 1e6), *below)
    for n, (window_s, *below) in enumerate(_STANDING, 1)
}
WIDEST = STANDING["standing20"]


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a query's life in which its text was the same.

    Attributes:
        query: The query.
        backfill: Whether earlier rows took part: ``state`` or ``none``.
        from_version: Plan version that it came with.
        to_version: Plan version without it; None: it stayed.
    """

    query: Query
    backfill: str
    from_version: int
    to_version: int | None = None


def visitor(name: str, rng: np.random.Generator) -> tuple[Query, str]:
    """Return a query that nobody had before, and how it begins."""
    query = Query(name, int(rng.choice((1, 3, 7, 12, 25, 40))) * 1_000_000)
    if rng.random() < 0.5:
        return _filtered(query, rng, 0.15), "none"
    return changed(query, rng), "state"


def changed(query: Query, rng: np.random.Generator) -> Query:
    """Return the query with other filters, within those of ``WIDEST``."""
    return _filtered(query, rng, 0.1)


def _filtered(query: Query, rng: np.random.Generator, most: float) -> Query:
    a_below, b_below = (most * (0.5 + 0.5 * rng.random(2))).round(6).tolist()
    return replace(query, a_below=a_below, b_below=b_below)
