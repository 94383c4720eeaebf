"""Explaining: the decisions, costs and changes of a plan, as values.

Doors: explain, preview.
"""
