"""Routes as columns: the one form of sets of queries from the buckets to the catalog and its readers.

Doors: query_sets, route_table.
"""
