"""Ownership: a lease allows one engine per catalog, and a lock allows one per data directory.

Doors: catalog_lease, engine_lock.
"""
