"""The workspace: one data directory with its catalog, inputs and engine, served as one.

Doors: plans, queries, serve, streams, workspace.
"""
