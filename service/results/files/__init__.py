"""Files of results: written by workers, checked by readers, small ones merged into larger ones.

Doors: merge, result_check, result_files.
"""
