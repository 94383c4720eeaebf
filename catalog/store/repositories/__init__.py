"""Repositories: each stores and finds one kind of record.

Doors: batches, control_log, epochs, idempotency, input_ends, migrations, plan_history, queries, routes,
settings, sinks, source_files, streams.
"""
