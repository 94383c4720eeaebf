"""Logic: normal forms of conditions, what they imply, the limits they set, and their simplest text.

Doors: implication, limits, simplify.
"""
