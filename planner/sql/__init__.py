"""CQL syntax: statements, forms of joins and trees of joins, before any type is known.

Doors: joins, statement, tree_clause.
"""
