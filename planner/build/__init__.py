"""Building: the plan of all families, its checks, and the steps that lead from one plan to the next.

Doors: build_plan, diff, objective, place_query, replication, retained_boundaries.
"""
