"""Kernels: keys as numbers, and the compiled loops over sorted arrays that all operators share.

Doors: bounded, distinct, fragments, keys, nearest, overlaps, sort, types.
"""
