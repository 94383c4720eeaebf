"""CQL syntax: dialect, statements, names in scope, windows and durations, before any type is known.

Doors: cql, joins, locate, normalize, scope, statement, step_scope, time_bounds,
    tree_clause.
"""
