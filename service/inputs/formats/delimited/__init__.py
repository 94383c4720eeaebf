"""Delimited text: rows and fields of CSV files, found in blocks of bytes, and what a header says of them.

Doors: header, rows.
"""
