"""Keys of the clients that may use a service, and the log of the changes that they requested.

Doors: api_keys, audit_log.
"""
