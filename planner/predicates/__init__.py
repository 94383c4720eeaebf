"""Predicates: conditions as values, their normal form, their text, and which implies which.

Doors: condition_text, conditions, constants, implication, read_condition, simplify, threshold.
"""
