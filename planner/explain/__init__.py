"""Explanations: the costs of a plan, the reasons for its choices, and previews of changes.

Doors: explain, preview.
"""
