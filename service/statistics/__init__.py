"""Statistics: measured profiles, counters of the running job, metrics.

Doors: metrics, profile, statistics.
"""
