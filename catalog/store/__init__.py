"""Storage of the catalog: one database, one unit of work, a repository for each kind of record.

Doors: lease, pruning, store.
"""
