"""Repositories: each stores and finds one kind of record.

Doors: batches, control_log, epochs, idempotency, migrations, plan_history, queries, routes, settings, sinks,
source_files, streams.
"""
