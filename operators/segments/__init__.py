"""Segments: immutable, key-sorted runs of rows, their stored form, their views, and patches.

Doors: cell_index, layout, merge, patch, row_codec, row_kinds, segment, segment_files, view_names,
waiting_rows.
"""
