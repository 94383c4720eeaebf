"""Findings about a file: its columns, number of rows and event times, and the rows to skip.

Doors: bad_rows, facts.
"""
