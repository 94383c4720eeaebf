"""Building: the plan of all families, with what it optimizes, and its checks.

Doors: build_plan, objective.
"""
