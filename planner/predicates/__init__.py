"""Predicates: conditions and constants as values, and conditions read from their stored text.

Doors: conditions, constants, read_condition.
"""
