"""The engine: starts the Spark job, waits for its end, and restarts it or reports why it ended.

Doors: engine, engine_control, manifest_reader.
"""
