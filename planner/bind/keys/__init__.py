"""Keys of the steps of a join of more than two streams, and bounds on the distances of event times.

Doors: distances, step_keys.
"""
