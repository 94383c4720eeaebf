"""The join operators, free of Spark.

Doors: errors.
"""
