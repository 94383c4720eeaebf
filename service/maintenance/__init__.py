"""Commands on a data directory or a catalog: back up, restore, repair, move, keys of clients.

Doors: backup, client_keys, move_command, repair.
"""
