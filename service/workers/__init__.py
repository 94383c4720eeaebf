"""The daemon that Spark's Python workers are forked from."""
