"""Steps of a join of more than two streams as queries of two sides.

Doors: bound_steps.
"""
