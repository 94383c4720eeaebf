"""Records of who may use a service, and of who changed what.

Doors: api_keys, audit_log.
"""
