"""Commit of batches: one manifest per batch, made of its buckets' reports, names the batch's files.

Files that no manifest names are removed.

Doors: commit, failpoints, sync.
"""
