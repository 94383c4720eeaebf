"""Clients of a service: what proves who they are, and what they may do.

Doors: api_keys, principal, tokens.
"""
