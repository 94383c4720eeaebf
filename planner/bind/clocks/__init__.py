"""Windows that are not of event time (rows, the order of streams), and rows that leave before a window ends.

Doors: horizons, orders, rows.
"""
