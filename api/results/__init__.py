"""Results of queries over HTTP.

Doors: endpoints, readers.
"""
