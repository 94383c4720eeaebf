"""Storage of the catalog: one database, one unit of work, a repository for each kind of record.

Doors: compaction, counts, database, lease, pruning, result_files, retention, store, tables.
"""
