"""Listed files: found, inspected, and opened inside the source root.

Doors: changed_files, files, opened_file.
"""
