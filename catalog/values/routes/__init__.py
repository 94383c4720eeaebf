"""Routes of many queries as columns, from the buckets to the catalog and its readers.

Doors: intersections, query_sets, route_table.
"""
