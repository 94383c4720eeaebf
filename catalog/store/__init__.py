"""Storage of the catalog: one database, one unit of work, a repository for each kind of record.

Doors: codec, compaction, counts, database, lease, plan_differences, pruning, result_files, retention, store,
tables.
"""
