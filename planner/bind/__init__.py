"""Binding: a statement and the registered streams give a query in canonical form.

Doors: bind, canonical, rewrite, step_keys.
"""
