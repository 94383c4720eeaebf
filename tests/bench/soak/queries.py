"""Queries of the soak: those that stand for its whole length, and those that visit.

Every query that enters with ``backfill: state`` has windows and filters within those of the standing
``WIDEST``. So each earlier row that it can use is held, and what it must give is simple to say: all its pairs
whose later row was processed while it was in force.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from catalog.values.query import Backfill


@dataclass(frozen=True, slots=True)
class SoakQuery:
    """A query over both streams.

    Attributes:
        a_us: Window of A, µs.
        b_us: Window of B, µs.
        a_below: It takes rows of A whose value is below.
        b_below: The same of B.
    """

    a_us: int
    b_us: int
    a_below: float
    b_below: float

    def cql(self) -> str:
        """Return its text."""
        filters = "".join(
            f" AND {name}.v < {below}"
            for name, below in (("A", self.a_below), ("B", self.b_below))
            if below < 1
        )
        return (
            f"SELECT A.id AS a, B.id AS b FROM A [RANGE {self.a_us // 1000} MILLISECONDS], "
            f"B [RANGE {self.b_us // 1000} MILLISECONDS] WHERE A.k = B.k{filters}"
        )


def _query(a_s: float, b_s: float, a_below: float = 1.0, b_below: float = 1.0) -> SoakQuery:
    return SoakQuery(round(a_s * 1e6), round(b_s * 1e6), a_below, b_below)


WIDEST = _query(120, 120, 0.1, 0.1)

#: 50 to 150 results a second each at 10,000 rows a second and stream.
STANDING = {
    f"standing{number}": query
    for number, query in enumerate(
        (
            _query(0.5, 0.5),
            _query(1, 1),
            _query(2, 1),
            _query(2, 2, 0.5),
            _query(5, 5, 0.4, 0.5),
            _query(5, 2, 0.6, 0.6),
            _query(10, 10, 0.3, 0.3),
            _query(10, 5, 0.5, 0.25),
            _query(15, 15, 0.25, 0.25),
            _query(20, 20, 0.2, 0.25),
            _query(20, 10, 0.3, 0.2),
            _query(30, 30, 0.2, 0.2),
            _query(30, 30, 0.15, 0.2),
            _query(45, 45, 0.15, 0.15),
            _query(60, 60, 0.12, 0.15),
            _query(60, 30, 0.2, 0.15),
            _query(60, 60, 0.1, 0.2),
            _query(90, 90, 0.1, 0.1),
            _query(120, 60, 0.15, 0.1),
            WIDEST,
        ),
        1,
    )
}


def visitor(rng: np.random.Generator) -> tuple[SoakQuery, Backfill]:
    """Return a query that nobody had before."""
    a_s, b_s = rng.choice((1, 3, 7, 12, 25, 40), 2).tolist()
    if rng.random() < 0.5:
        return _query(a_s, b_s, *_filters(rng, 0.15)), "none"
    return _query(a_s, b_s, *_filters(rng, WIDEST.a_below)), "state"


def changed(query: SoakQuery, rng: np.random.Generator) -> SoakQuery:
    """Return the query with other filters, within those of ``WIDEST``."""
    a_below, b_below = _filters(rng, WIDEST.a_below)
    return replace(query, a_below=a_below, b_below=b_below)


def _filters(rng: np.random.Generator, most: float) -> tuple[float, float]:
    a_below, b_below = (most * (0.5 + 0.5 * rng.random(2))).round(6).tolist()
    return a_below, b_below
