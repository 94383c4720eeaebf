"""The engine: starts the job, follows it, and restarts or reports it when it ends.

Doors: engine, engine_control, manifest_reader.
"""
