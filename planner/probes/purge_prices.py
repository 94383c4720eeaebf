"""Prices from which a family decides when it searches its stored rows for rows whose key is closed."""

from __future__ import annotations

from catalog.values.calibration import Calibration
from catalog.values.policies.probe import Probe
from catalog.values.policies.punctuation_policy import PurgePrices


def purge_prices(probe: Probe, constants: Calibration) -> PurgePrices:
    """Return the prices for a family, given the method of searching its slices.

    Args:
        probe: The method of searching.
        constants: Calibrated constants.
    """
    if not probe.has_rings:
        return PurgePrices(constants.per_searched_row, 0.0, constants.per_male_segment)
    per_row = constants.per_scanned_row / probe.cells
    return PurgePrices(constants.per_searched_row, per_row, 2 * constants.per_ring_look)
