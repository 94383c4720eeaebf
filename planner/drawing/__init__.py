"""Drawing: a plan's chains to scale.

Doors: svg.
"""
