"""Commit: one manifest per batch from the buckets' reports; files without a manifest are removed.

Doors: bucket_report, commit, reports, spark_log, sync.
"""
