"""The bucket: all families' joins for its keys, and their stored state.

Doors: batch_output, bucket, counters.
"""
