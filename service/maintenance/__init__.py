"""Commands on a data directory or a catalog: backup, restore, move and client keys.

Doors: backup, client_keys, move_command.
"""
