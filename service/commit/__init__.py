"""Commit: reports of the buckets become one manifest per batch; retention and sweeping of what it replaced.

Doors: bucket_report, commit, commits, pruning, reports, retention, spark_log, sync.
"""
