"""Predicates: conditions as values, their normal form, their text, and which implies which.

Doors: condition_text, conditions, constants, implication, limits, read_condition, simplify, threshold.
"""
