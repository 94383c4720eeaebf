"""Rows without a partner: outer, semi and anti joins, and conditions and outputs for rows without a partner.

Doors: absence, nulls.
"""
