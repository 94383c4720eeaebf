"""The workspace: one data directory with its catalog and inputs, and its engine's part.

Doors: bounded_run, engine_part, workspace.
"""
