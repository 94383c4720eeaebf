"""Kernels: join keys as numbers, their assignment to buckets, and sorting; used by all operators.

Doors: fragments, keys, sort.
"""
