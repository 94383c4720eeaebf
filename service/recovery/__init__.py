"""Recovery: whether catalog, checkpoint, events and results belong together, and how they are repaired.

Doors: checkpoint, doctor, identity, opening, repair.
"""
