"""Files of results: written by workers, checked where they are read, small ones merged into larger ones.

Doors: merge, result_check, result_files.
"""
