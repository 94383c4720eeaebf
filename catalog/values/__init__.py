"""Immutable values that all packages share. They know no database.

Doors: batch, boundaries, calibration, change, migration, plan, primitive, query, sink, source_file,
statistics, stream.
"""
