"""Rows of joins without windows that wait on disk because the other stream lags far behind.

Doors: parked_rows.
"""
