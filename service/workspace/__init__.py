"""The workspace: one data directory with its catalog, inputs and engine.

Doors: bounded_run, engine_part, workspace.
"""
