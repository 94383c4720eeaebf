"""Repositories, each of which stores and finds one kind of record.

Library: every module is a door. Doors: batches, control_log, counts, migrations, plan_history,
queries, routes, settings, sinks, source_files, streams.
"""
