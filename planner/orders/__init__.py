"""Predictions for joins over ordered streams: lags between the streams, and the number of stored rows.

Doors: buffers, lag.
"""
