"""Caps on the bytes of state that the rows of a stream may take.

Doors: state_caps.
"""
