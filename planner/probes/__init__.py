"""Methods of searching the slices of a family: their costs, and the planner's choice among them.

Doors: asked_probe, choose_probe, purge_prices.
"""
