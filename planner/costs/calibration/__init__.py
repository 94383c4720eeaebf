"""The calibrated cost model, and its default constants, used until a machine is calibrated.

Doors: calibrated, shipped.
"""
