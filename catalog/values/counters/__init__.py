"""Counters of a batch, as its manifest keeps them.

Library: every module is a door. Doors: add_up, batch_counters, family_counters, slice_table.
"""
