"""Steps of joins of more than two streams: pairs of one step as rows of the next.

Doors: exchange, expiry, handed_pairs.
"""
