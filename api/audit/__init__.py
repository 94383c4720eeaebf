"""The audit log over HTTP.

Doors: endpoints.
"""
