"""Building: the plan of all families, the objective for which it is built, and the checks of a plan.

Doors: build_plan, objective.
"""
