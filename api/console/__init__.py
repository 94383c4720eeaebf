"""The console: pages for people, served as files that use the public API alone.

Doors: console.
"""
