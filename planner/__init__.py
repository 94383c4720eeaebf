"""The planner: from CQL text to a shared plan of sliced joins, its costs, and the steps between two plans.

Doors: errors.
"""
