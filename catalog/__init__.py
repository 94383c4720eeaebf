"""The catalog: values that all packages share, and their storage. Imports nothing of Sluice.

Doors: arrow_types, clock, durations, errors, mistakes, punctuation_marks, sql_text, steps, wording.
"""
