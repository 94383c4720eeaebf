"""Move of a data directory to another place or another number of buckets, with its stored state.

Doors: move, moved_state.
"""
