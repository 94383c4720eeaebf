"""Ranks of rows: windows of rows count the rows of a stream, whichever bucket these are in.

Doors: clocked_rows, rank_rows, ranked_rows, ranking.
"""
