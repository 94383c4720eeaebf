"""Families as users read and write them: their names, titles, windows and predicates.

Doors: display, family_names.
"""
