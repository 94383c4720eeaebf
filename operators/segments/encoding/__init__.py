"""The stored form of rows: rows and patches as bytes, and the names of views on stored rows.

Doors: patch, row_codec, view_names.
"""
