"""The calibrated cost model, and the constants used until a machine has its own.

Doors: calibrated, shipped.
"""
