"""Rows per query as columns: results of batches in the catalog, and counts that buckets report.

Doors: query_counts, query_rows.
"""
