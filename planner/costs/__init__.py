"""Costs: rates of streams, and the costs of chains under the paper's cost model and the calibrated one.

Doors: cost, cost_models, rates.
"""
