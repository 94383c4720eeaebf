"""Pages of results: cursors, spans of the next page, and the sorted runs that pages are cut from.

Doors: page, runs, spans.
"""
