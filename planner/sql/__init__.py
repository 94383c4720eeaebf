"""CQL syntax: dialect, statements, names in scope, windows and durations, before any type is known.

Doors: cql, joins, locate, normalize, scope, statement, time_bounds.
"""
