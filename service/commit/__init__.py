"""Commit: one manifest per batch from the buckets' reports; files that no manifest names are removed.

Doors: bucket_report, commit, reports, spark_log, sync.
"""
