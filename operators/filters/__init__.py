"""Filters: SQL expressions over rows, evaluated by DuckDB within limits of time and memory.

Doors: expressions.
"""
