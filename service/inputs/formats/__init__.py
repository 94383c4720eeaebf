"""Formats: readers of CSV, JSON lines and Parquet files, which convert values to the types of the stream.

Doors: file_inspectors, file_readers, text_input.
"""
