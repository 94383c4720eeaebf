"""The workspace: one data directory with its catalog, inputs and engine, served as one.

Doors: bounded_run, queries, repair, workspace.
"""
