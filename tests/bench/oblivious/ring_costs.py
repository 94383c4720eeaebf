"""Cost of windowed nested-loops and hash joins (WNL, WHJ), and the rows that their invalidations hold.

λ are rates per second, T windows in seconds, N rings per side. When a row of A comes, it scans a ring of B:

    WNL = (λA + λB)(Cinv + Cins) + λA λB (TA + TB) Cscan          (1)
    WHJ = (λA + λB)(Cinv + Cins) + λA λB (TA + TB) / N Cscan      (2)

Cinv is a comparison for each expired row, and one for each ring that is looked at. Rings looked at for each
row, and rows of B that have expired but are still held:

    invalidation    rings    expired rows of B
    probe           1        N λB / λA
    probe+insert    2        N λB / (λA + λB)
    probe-all       N        λB / λA
    optimal         2N       λB / (λA + λB)

Source: Kostowski and Claypool, §3.1, Eq. 1 and 2, and §3.2, where the expired rows are those of one ring. The
    last two rows of the table follow from its argument: rows that expire between two looks at a ring are
    still held. If looks come at random, the time since the last one has the same mean as that between two.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.values.policies.probe import Invalidation, Probe
from planner.families.families import SideName


@dataclass(frozen=True, slots=True)
class JoinRates:
    """Rates and windows of both sides of a join.

    Attributes:
        a_per_s: Rows of a per second.
        b_per_s: Rows of b per second.
        w_a_s: Window of a, seconds.
        w_b_s: Window of b, seconds.
    """

    a_per_s: float
    b_per_s: float
    w_a_s: float
    w_b_s: float


@dataclass(frozen=True, slots=True)
class RingWork:
    """Comparisons and insertions of a join in rings, per second.

    Attributes:
        inserted: Rows inserted.
        looked: Heads of rings looked at that had not expired.
        removed: Expired rows removed.
        scanned: Rows that probing rows are compared with.
    """

    inserted: float
    looked: float
    removed: float
    scanned: float

    def cost(self, per_inserted: float, per_invalidated: float, per_scanned: float) -> float:
        """Return the total cost per second for the prices Cins, Cinv (per comparison) and Cscan."""
        invalidated = self.looked + self.removed
        return self.inserted * per_inserted + invalidated * per_invalidated + self.scanned * per_scanned


def ring_work(rates: JoinRates, probe: Probe) -> RingWork:
    """Return the expected work of a join in rings (Eq. 1 and 2).

    >>> ring_work(JoinRates(10, 20, 30, 30), Probe("hash", 100))
    RingWork(inserted=30, looked=30, removed=30, scanned=120.0)
    """
    rows = rates.a_per_s + rates.b_per_s
    scanned = rates.a_per_s * rates.b_per_s * (rates.w_a_s + rates.w_b_s) / probe.cells
    return RingWork(rows, rows * rings_looked_at(probe.invalidation, probe.cells), rows, scanned)


def rings_looked_at(invalidation: Invalidation, cells: int) -> int:
    """Return how many rings are looked at for each row."""
    return {"probe": 1, "probe+insert": 2, "probe-all": cells, "optimal": 2 * cells}[invalidation]


def expired_rows(rates: JoinRates, probe: Probe, side: SideName) -> float:
    """Return how many rows of a side have expired, but are still held on average (§3.2).

    >>> expired_rows(JoinRates(1, 100, 30, 30), Probe("hash", 100), "b")
    10000.0
    """
    own, other = (rates.a_per_s, rates.b_per_s) if side == "a" else (rates.b_per_s, rates.a_per_s)
    looking = other if probe.invalidation in ("probe", "probe-all") else own + other
    if looking <= 0:
        return 0.0
    rings = probe.cells if probe.invalidation in ("probe", "probe+insert") else 1
    return rings * own / looking
