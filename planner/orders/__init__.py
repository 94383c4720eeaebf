"""Predicted state of joins over ordered streams: how far apart streams are, and how many rows that costs.

Doors: buffers, lag.
"""
