"""The join operators, free of Spark."""
