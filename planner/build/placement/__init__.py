"""Placement: the buckets that store the rows of each key, and the family of each new query.

Doors: place_query, replication.
"""
