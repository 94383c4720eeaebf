"""The bucket: the joins of all families for the keys that hash to the bucket, and their stored state.

Doors: batch_output, bucket, counters.
"""
