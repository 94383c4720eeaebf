"""Statistics and metrics over HTTP.

Doors: endpoints.
"""
