"""Delimited text: finds rows and fields of CSV files in blocks of bytes, and columns by the header.

Doors: header, rows.
"""
