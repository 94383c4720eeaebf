"""Keys of the steps of a join of more than two streams, and the distances between its event times.

Doors: distances, step_keys.
"""
