"""Strategies: one rule per module, each turns a family into joins of slice chains.

Doors: cpu_opt, mem_opt, pullup, pushdown, shared_join, slice_dag, unshared.
"""
