"""Admission of input to the next batch, and a check whether rows could be late.

Doors: admission, lateness, packed_bytes.
"""
