"""Lineage: which queries a row or a pair may serve, from filters that were evaluated to routes.

Doors: entitlement, lineage, routes.
"""
