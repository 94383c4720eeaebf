"""Groups of pairs, the results of queries with GROUP BY.

Doors: grouping.
"""
