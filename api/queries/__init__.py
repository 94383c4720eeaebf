"""Queries over HTTP.

Doors: changing, endpoints, schemas.
"""
