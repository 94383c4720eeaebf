"""Finished keys: closed keys of which no later result can come.

Doors: waiting_keys.
"""
