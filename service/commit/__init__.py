"""Commit: one manifest per batch from the buckets' reports; files that no manifest names are removed.

Doors: commit, failpoints, sync.
"""
