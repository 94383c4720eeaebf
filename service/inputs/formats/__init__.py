"""Formats: rows and facts of CSV, JSON lines and Parquet files, typed as declared.

Doors: avro, bad_rows, csv, facts, jsonl, messages, parquet, parquet_footer, text_input, times, values.
"""
