"""Queries and their results over HTTP.

Doors: changing, endpoints, results, schemas.
"""
