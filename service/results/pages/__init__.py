"""Pages: what a reader has read, what the next page holds, and the sorted runs that it is cut out of.

Doors: cursors, page, query_rows, run_maker, spans.
"""
