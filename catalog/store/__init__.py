"""Storage of the catalog: one database with transactions, and a repository for each kind of record.

Doors: lease, pruning, store.
"""
