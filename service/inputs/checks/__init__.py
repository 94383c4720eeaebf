"""Checks of sources before a stream is registered: usable, and in a directory that may be read.

Doors: source_roots, validate.
"""
