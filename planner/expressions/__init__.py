"""Typed expressions: columns, constants, operators and functions, with the DuckDB text of each.

Doors: column_types, comparisons, expressions, functions, typed.
"""
