"""The envelope of all requests and answers: request ids, security headers, checks of hosts and origins.

Doors: envelope, origins.
"""
