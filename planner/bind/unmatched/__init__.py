"""Rows without a partner: the join that a query asks for, and its conditions and outputs for such rows.

Doors: absence, nulls.
"""
