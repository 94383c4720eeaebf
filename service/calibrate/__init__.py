"""Calibration: measured runs of the operators, and the cost constants fitted to them.

Doors: command.
"""
