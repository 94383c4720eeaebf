"""Loads of a chain: the rows, segments and results that a cost model prices, from rates and row classes.

Doors: loads, verdicts.
"""
