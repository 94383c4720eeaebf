"""Logic of conditions: normal forms, implications, limits on columns, and the simplest text.

Doors: implication, limits, simplify.
"""
