"""Limits of input: the free space of the disk, and the backlog of posted events.

Doors: backlog, disk_space.
"""
