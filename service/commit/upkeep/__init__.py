"""Upkeep of committed data: old results and records are removed, small result files are merged.

Doors: compaction, pruning, retention.
"""
