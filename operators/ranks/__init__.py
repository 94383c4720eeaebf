"""Ranks of rows, for windows that count the rows of a stream, whichever buckets store these rows.

Doors: clocked_rows, ranked_rows, ranking.
"""
