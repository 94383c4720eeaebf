"""Clients of a service: their credentials and permissions.

Doors: api_keys, principal, tokens.
"""
