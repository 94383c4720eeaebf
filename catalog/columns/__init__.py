"""Columns of streams in Arrow: their types, and the marks that make rows punctuations.

Doors: arrow_types, punctuation_marks.
"""
