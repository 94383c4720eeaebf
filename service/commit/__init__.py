"""Commit: reports of the buckets become one manifest per batch; retention and sweeping of what it replaced.

Doors: commit, commits, pruning, reported_routes, reports, retention.
"""
