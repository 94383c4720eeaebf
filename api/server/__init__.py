"""Connections of the HTTP server: their limits, TLS, and the event loop.

Doors: connections, loop, tls.
"""
