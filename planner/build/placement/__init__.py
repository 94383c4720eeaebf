"""Placement: the buckets of the rows of each key, and what that means for a new query.

Doors: place_query, replication.
"""
