"""CQL syntax: statements, forms of joins and the TREE clause, before names and types are resolved.

Doors: joins, statement, tree_clause.
"""
