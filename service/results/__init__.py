"""Results: files of joined pairs, read per query as pages or exported.

Doors: export, merge, result_check, result_files, result_formats, results, runs.
"""
