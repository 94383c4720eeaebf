"""The bucket: all families' joins for its keys, their stored state, and its move to other buckets.

Doors: batch_output, bucket, counters, rehash.
"""
