"""Lineage: which queries a row or a pair may serve, from filter answers to routes.

Doors: entitlement, lineage, routes.
"""
