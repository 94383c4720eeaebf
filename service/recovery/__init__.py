"""Recovery: checks that catalog, checkpoint, events and results belong together.

Doors: checkpoint, identity, opening.
"""
