"""Windows that count rows or follow the order of a stream, and eviction of rows before their windows end.

Doors: horizons, orders, rows.
"""
