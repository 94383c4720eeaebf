"""Migrations over HTTP.

Doors: endpoints.
"""
