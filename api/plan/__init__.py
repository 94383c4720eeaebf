"""The shared plan over HTTP.

Doors: endpoints.
"""
