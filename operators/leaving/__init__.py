"""Rows that are removed early: windows still reach these rows, but no query needs them any more.

Doors: needs.
"""
