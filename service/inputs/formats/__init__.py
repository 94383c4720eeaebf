"""Formats: rows and facts of CSV, JSON lines and Parquet files, typed as declared.

Doors: file_inspectors, file_readers, text_input.
"""
