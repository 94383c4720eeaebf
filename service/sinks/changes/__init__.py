"""Changes of sinks: checks that requests are valid, and that no two sinks share a directory.

Doors: sink_changes.
"""
