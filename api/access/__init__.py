"""Admission of requests: where they come from, who sends them, and what he may do.

Doors: connections, envelope, guard, origins, scopes.
"""
