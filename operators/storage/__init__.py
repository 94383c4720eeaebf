"""Folders shared by all processes of a job: a directory, or an object store with a cache.

Doors: folder, object_folder, writeback.
"""
