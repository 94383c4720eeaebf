"""Commit: reports of the buckets become one manifest per batch; files that none names are swept.

Doors: bucket_report, commit, commits, reports, spark_log, sync.
"""
