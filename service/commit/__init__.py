"""Commit: reports of the buckets become one manifest per batch; files that no manifest names are removed.

Doors: bucket_report, commit, reports, spark_log, sync.
"""
