"""Files of results and late rows: their names, their compaction, and the retention of their results.

Doors: compaction, result_files, retention.
"""
