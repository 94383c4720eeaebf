"""Counters of a batch, as its manifest keeps them.

Doors: add_up, batch_counters, family_counters, slice_table.
"""
