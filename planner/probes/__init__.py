"""How the slices of a family are searched: what each way costs, and which one the planner takes.

Doors: asked_probe, choose_probe, purge_prices.
"""
