"""The catalog: values that all packages share, and their storage. It imports no other package of Sluice.

Doors: errors, sql_text, steps.
"""
