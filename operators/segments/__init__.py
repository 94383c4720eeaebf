"""Segments: immutable, key-sorted runs of rows, their stored form, and views and patches of them.

Doors: cell_index, layout, merge, patch, row_codec, row_kinds, segment, segment_files, view_names, views,
waiting_rows.
"""
