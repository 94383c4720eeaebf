"""Configuration: settings, the data directory, and the constants of this machine.

Doors: calibration, data_dir, settings.
"""
