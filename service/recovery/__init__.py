"""Recovery: whether catalog, checkpoint, events and results belong together, and what to do where not.

Doors: backup, checkpoint, doctor, identity, move, moved_state, opening, repair, restore.
"""
