"""Types of expressions, and the typed expression that all parts of the compiler return.

Doors: column_types, typed.
"""
