"""Immutable values that all packages share; they do not depend on the database.

Library: every module is a door. Doors: batch, calibration, change, control, migration, plan, primitive,
query, sink, source_file, statistics, stream.
"""
