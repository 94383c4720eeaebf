"""How much input the next batch takes, and what is late when it begins.

Doors: admission, lateness, packed_bytes.
"""
