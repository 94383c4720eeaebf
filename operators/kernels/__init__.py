"""Kernels: keys as numbers, and compiled loops over sorted arrays, shared by all operators.

Doors: fragments, keys, sort.
"""
