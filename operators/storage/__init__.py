"""Folders of files that all processes of a job share: a directory, or an object store behind one.

Doors: folder, object_folder, writeback.
"""
