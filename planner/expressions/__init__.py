"""Compiler of CQL expressions: types are checked, and each expression is written as DuckDB text.

Doors: comparisons, expressions, functions.
"""
