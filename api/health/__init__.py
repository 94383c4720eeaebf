"""Probes.

Doors: endpoints.
"""
