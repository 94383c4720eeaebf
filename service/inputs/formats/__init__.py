"""Formats: rows and facts of CSV, JSON lines and Parquet files, typed as declared.

Doors: bad_rows, csv, facts, jsonl, parquet, parquet_footer, text_input, times, values.
"""
