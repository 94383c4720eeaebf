"""Backups of a data directory: made while the service runs, and restored to an empty place.

Doors: backup, backup_files, restore.
"""
