"""Admission of requests: checks of their origin, their sender and the sender's rights.

Doors: connections, envelope, guard, origins, scopes.
"""
