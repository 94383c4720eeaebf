"""The bucket: all families' joins for its keys, their stored state, and a dry run of a plan.

Doors: batch_output, bucket, counters, dry_run, rehash.
"""
