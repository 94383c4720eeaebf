"""Predicates: conditions as values, their normal form, their text, and which implies which.

Doors: conditions, constants, implication, limits, read_condition, simplify.
"""
