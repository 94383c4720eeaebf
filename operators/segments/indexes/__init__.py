"""Indexes that a segment keeps once they are computed: the cells and the kinds of its rows.

Doors: cell_index, row_kinds.
"""
