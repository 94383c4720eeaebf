"""Binding of joins of more than two streams as steps with two sides each, and of the TREE clause.

Doors: steps.
"""
