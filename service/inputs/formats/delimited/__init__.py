"""Delimited text: rows and fields of CSV files, found in blocks of bytes, and their columns by the header.

Doors: header, rows.
"""
