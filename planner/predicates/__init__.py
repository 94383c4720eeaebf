"""Predicates: conditions and constants as Python values, and the reader of conditions stored as text.

Doors: conditions, constants, read_condition.
"""
