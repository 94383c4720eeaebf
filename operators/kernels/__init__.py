"""Kernels: keys as numbers, and the compiled loops over sorted arrays that all operators share.

Doors: bounded, distinct, fragments, key_filter, keys, merge, nearest, overlaps, positions, sort,
types, watermark.
"""
