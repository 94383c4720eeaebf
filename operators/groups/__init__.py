"""Groups: what queries with GROUP BY make of their pairs, kept per bucket until a group is closed.

Doors: compiled_groups, finishing, open_groups.
"""
