"""Predicted state of joins over ordered streams: lags between streams, and rows held because of them.

Doors: buffers, lag.
"""
