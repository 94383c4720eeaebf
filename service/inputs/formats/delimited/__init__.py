"""Delimited text: finds rows and fields of CSV files in blocks of bytes, columns by the header.

Doors: header, rows.
"""
