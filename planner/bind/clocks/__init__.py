"""Windows not based on event time (rows, stream order), and eviction before a window ends.

Doors: horizons, orders, rows.
"""
