"""The wording of messages: hints with known names, and the errors of pydantic in the terms of Sluice.

Doors: mistakes, outside, wording.
"""
