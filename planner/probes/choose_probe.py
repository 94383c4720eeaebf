"""Choice of the method of searching the slices of a family: the cheapest by the calibrated constants.

Merging has a small cost for each male and segment, however many rows the segment has. Rings have about the
same cost, plus a cost for each scanned row and for sorting each segment. So merging is cheapest unless its
constants are high. Costs that are the same for all methods (males that visit slices, pairs, results, stored
rows) are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from catalog.values.calibration import Calibration
from catalog.values.plan import FamilyPlan
from catalog.values.policies.probe import MOST_CELLS, Probe
from planner.costs.cost import SearchLoads
from planner.costs.loads.loads import search_loads
from planner.costs.rates import FamilyRates

#: Numbers of rings that are compared, up to the number of keys.
_CELLS = (8, 64, 512, MOST_CELLS)


def may_have_rings(family: FamilyPlan) -> bool:
    """Return whether the rows of a family may be in rings.

    Rings are organized by key, and their rows expire by a single clock. Rows that wait until it is
    known whether they have a match are looked up in a different way, so they are not in rings.
    """
    return bool(family.key) and not family.ranked and not family.judges_absence


def choose_probe(family: FamilyPlan, rates: FamilyRates, constants: Calibration) -> Probe:
    """Return the cheapest method of searching the slices of a family.

    Args:
        family: The family, with its joins.
        rates: Known or assumed rates of the family.
        constants: Calibrated constants.
    """
    if not may_have_rings(family):
        return Probe()
    keys = 1.0 / max(rates.join_selectivity.value, 1.0 / MOST_CELLS)
    probes = [Probe(), Probe("loops"), *(Probe("hash", n) for n in _CELLS if n <= keys)]
    # Loads are the same for all methods, so they are computed once; with thousands of windows, this takes
    # most of the time.
    loads = [load for join in family.joins for load in search_loads(family, join, rates)]
    return min(probes, key=lambda probe: search_s(loads, rates.buckets, constants, probe))


def search_s(loads: Sequence[SearchLoads], buckets: int, constants: Calibration, probe: Probe) -> float:
    """Return the CPU seconds per second of event time that depend on the method of searching.

    Args:
        loads: Work of the slices of each side of a family's joins.
        buckets: Buckets of the job.
        constants: Calibrated constants.
        probe: The method of searching.
    """
    total = 0.0
    for load in loads:
        looks = load.males_per_s * load.segments
        if not probe.has_rings:
            total += constants.per_male_segment * float(looks.sum())
            continue
        # Each bucket has its own rings.
        scanned = load.candidates_per_s / probe.cells / max(buckets, 1)
        scanned = np.maximum(scanned, load.matches_per_s)
        # A male looks up its ring twice in each segment: first the head of the ring, then its rows.
        slices_s = 2 * constants.per_ring_look * looks + constants.per_scanned_row * scanned
        total += float(slices_s.sum()) + constants.per_ring_row * load.inserted_per_s
    return total
