"""Binding: from a statement and the registered streams to a query in canonical form.

Doors: bind, canonical, rewrite.
"""
