"""Upkeep of committed data: removal of old results and records, and merging of small result files.

Doors: compaction, pruning, retention.
"""
