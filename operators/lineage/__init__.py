"""Lineage: which queries a row or a pair may serve, from evaluated filters to routes.

Doors: entitlement, expressions, lineage, lineage_words, query_sets, route_table, routes.
"""
