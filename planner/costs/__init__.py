"""Costs: rates, row classes and loads of a chain, priced by the paper's model or the calibrated one.

Doors: calibrated, cost, family_cost, loads, paper_model, rates, shipped.
"""
