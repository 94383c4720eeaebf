"""Results: files of joined pairs, read per query as pages or exported.

Doors: export, result_formats, results.
"""
