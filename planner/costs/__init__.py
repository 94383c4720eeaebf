"""Costs: rates, row classes and loads of a chain, priced by the paper's model or the calibrated one.

Doors: calibrated, cost, cost_models, loads, rates, shipped.
"""
