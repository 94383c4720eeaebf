"""Join order of more than two streams, chosen by cost.

Doors: choice.
"""
