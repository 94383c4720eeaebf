"""Clients of a service: their keys, the log of their changes, and the answers to repeated requests.

Doors: api_keys, audit_log, idempotency.
"""
