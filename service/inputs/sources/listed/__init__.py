"""Listed files: found, judged, and opened inside the source root.

Doors: files, opened_file.
"""
