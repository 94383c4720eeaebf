"""Commit: reports of the buckets become one manifest per batch; merging, retention and sweeping of files.

Doors: bucket_report, commit, commits, compaction, pruning, reports, retention, spark_log, sync.
"""
