"""Backups of a data directory: they are made while the service runs, and restored to an empty directory.

Doors: backup, backup_files, restore.
"""
