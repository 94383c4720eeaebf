"""Statistics: measured and sampled profiles, counters of the running job, metrics.

Doors: metrics, profile, query_status, sampling, statistics.
"""
