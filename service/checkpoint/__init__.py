"""Spark's checkpoint: its logs of batches, and the number of buckets that it fixes, with their keys.

Doors: buckets, spark_log.
"""
