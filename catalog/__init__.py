"""The catalog: values that all packages share, and their storage. Imports nothing of Sluice.

Doors: errors, sql_text, steps.
"""
