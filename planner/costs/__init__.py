"""Costs: rates, and costs of a chain, priced by the paper's model or the calibrated one.

Doors: cost, cost_models, rates.
"""
