"""Steps of joins of more than two streams: pairs that go on as rows of the next step.

Doors: handed_pairs, watermarks.
"""
