"""Types of expressions, and the class ``Typed`` of compiled expressions.

Doors: column_types, typed.
"""
