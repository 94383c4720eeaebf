"""The cache: decoded segments that a worker process keeps from batch to batch, and views of them.

Doors: segment_cache.
"""
