"""Two-sided queries for the steps of a join of more than two streams, and the TREE clause.

Doors: steps.
"""
