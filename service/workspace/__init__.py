"""The workspace: one data directory with its catalog and inputs, and its engine's part.

Doors: backup, bounded_run, client_keys, engine_part, queries, repair, workspace.
"""
