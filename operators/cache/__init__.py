"""The cache: decoded segments of a worker process, and the views on them.

Doors: segment_cache.
"""
