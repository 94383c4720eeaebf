"""Changes of sinks: checks that a request is valid, and that no two sinks share a place.

Doors: sink_changes.
"""
