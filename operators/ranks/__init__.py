"""Ranks of rows, for windows that count a stream's rows, regardless of the buckets of these rows.

Doors: clocked_rows, ranked_rows, ranking.
"""
