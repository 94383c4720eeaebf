"""Rows without a partner: the join that a query requests, and its conditions and outputs for such rows.

Doors: absence, nulls.
"""
