"""Typed expressions: columns, constants, operators and functions, with the DuckDB text of each.

Doors: comparisons, expressions, functions.
"""
