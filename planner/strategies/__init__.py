"""Strategies, one per module: each turns a family into joins whose sides are chains of slices.

Doors: shared_join, slice_dag, strategies.
"""
