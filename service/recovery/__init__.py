"""Recovery: checks that catalog, checkpoint, events and results belong together, and repairs them.

Doors: checkpoint, doctor, identity, opening, repair.
"""
