"""Reading: the rows of a partition, for a batch, for a sample, or as voided input.

Doors: read, sample, voided.
"""
