"""Listed files: found, inspected, and opened inside the source root.

Doors: files, opened_file.
"""
