"""Generated rows: chunks of a generator, and the distributions of their values.

Doors: distributions, generator.
"""
