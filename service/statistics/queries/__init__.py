"""Status of queries: wanted and observed state, and warnings.

Doors: query_status.
"""
