"""Lineage: which queries a row or a pair may serve, from evaluated filters to routes.

Doors: entitlement, expressions, lineage, lineage_words, route_counts,
route_numbers, routes.
"""
