"""Caps on the state that rows of a stream may take.

Doors: state_caps.
"""
