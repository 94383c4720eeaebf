"""Backups of a data directory: made while the service runs, restored into an empty directory.

Doors: backup, backup_files, restore.
"""
