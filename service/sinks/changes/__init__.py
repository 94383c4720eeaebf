"""Changes of sinks: what a request may set, and whether two sinks would share a place.

Doors: sink_changes.
"""
