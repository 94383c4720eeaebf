"""Kernels: keys as numbers, and the compiled loops over sorted arrays that all operators share.

Doors: fragments, keys, sort.
"""
