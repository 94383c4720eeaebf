"""Finished keys: closed keys of which no later result is possible.

Doors: waiting_keys.
"""
