"""Access to routes: the sender of a request, and the scopes and rates that keys allow.

Doors: guard, rights, scopes.
"""
