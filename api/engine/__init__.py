"""The engine over HTTP.

Doors: endpoints.
"""
