"""The engine: starts the job, follows it, and restarts or reports it when it ends.

Doors: catalog_lease, engine, engine_control, engine_lock, manifest_reader.
"""
