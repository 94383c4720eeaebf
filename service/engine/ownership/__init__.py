"""Ownership: one engine per catalog, by its lease, and one per data directory, by its lock.

Doors: catalog_lease, engine_lock.
"""
