"""Queries and their results over HTTP."""
