"""Pages of results: cursors, spans of the next page, and the sorted runs that pages are cut from.

Doors: cursors, page, query_rows, run_maker, spans.
"""
