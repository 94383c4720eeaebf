"""The stored state of a bucket: its manifest, and segments that are written once.

Doors: load_bucket, manifest, store_segments.
"""
