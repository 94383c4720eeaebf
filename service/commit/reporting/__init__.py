"""Reports: for each bucket of a batch, a worker sends the engine its files, counters and routes.

Doors: bucket_report, reports.
"""
