"""Strategies: one rule per module, each turns a family into joins of slice chains.

Doors: shared_join, slice_dag, strategies.
"""
