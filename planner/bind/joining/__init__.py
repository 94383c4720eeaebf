"""Steps of a join of more than two streams as queries of two sides, and trees that a query names.

Doors: bound_steps, named_tree.
"""
