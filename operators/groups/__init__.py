"""Groups of pairs for queries with GROUP BY, kept per bucket until a group is closed.

Doors: compiled_groups, open_groups.
"""
