"""Recovery: whether catalog, checkpoint, events and results are of one life, and what to do where not.

Doors: checkpoint, identity, opening, repair.
"""
