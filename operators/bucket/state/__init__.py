"""The stored state of a bucket: its manifest, and its segments, which are immutable once written.

Doors: load_bucket, manifest, store_segments.
"""
