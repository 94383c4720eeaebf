"""Streams over HTTP.

Doors: endpoints.
"""
