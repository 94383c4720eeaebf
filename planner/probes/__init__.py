"""Ways to search the slices of a family: their costs, and the planner's choice.

Doors: asked_probe, choose_probe, purge_prices.
"""
