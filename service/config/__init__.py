"""Configuration: settings, the data directory, durations, logging and places for crash tests.

Doors: access_settings, batch_size, buckets, calibration, data_dir, failpoints, kafka_client, log, settings.
"""
