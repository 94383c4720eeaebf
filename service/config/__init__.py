"""Configuration: settings, the data directory, durations, logging and places for crash tests.

Doors: batch_size, buckets, calibration, data_dir, failpoints, log, settings.
"""
