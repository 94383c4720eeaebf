"""Diagnosis: `sluice doctor` examines a service, and `sluice repair` a damaged data directory.

Doors: doctor, repair.
"""
