"""Finished keys: closed keys for which no later result is possible.

Doors: waiting_keys.
"""
