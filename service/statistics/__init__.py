"""Statistics: measured and sampled profiles, counters of the running job, metrics.

Doors: metrics, order_statistics, profile, query_status, sample_answers, sampling, series_bound,
statistics.
"""
