"""The rehash: the rows of all buckets, distributed over a different number of buckets.

Doors: rehash.
"""
