"""The console: web pages for human users, served as static files that use only the public API.

Doors: console.
"""
