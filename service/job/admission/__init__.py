"""Which input the next batch takes, and which of its rows are late.

Doors: admission, lateness, packed_bytes.
"""
