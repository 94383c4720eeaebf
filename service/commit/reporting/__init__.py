"""Reporting: what the workers tell the engine about each bucket of a batch.

Doors: bucket_report, reports.
"""
