"""Streams over HTTP.

Doors: endpoints, event_body.
"""
