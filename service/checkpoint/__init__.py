"""Spark's checkpoint: its logs of batches, the number of buckets that it fixes, and the buckets' keys.

Doors: buckets, spark_log.
"""
