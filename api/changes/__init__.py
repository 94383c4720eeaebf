"""Lists of changes over HTTP.

Doors: endpoints.
"""
