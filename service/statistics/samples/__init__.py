"""Sampled statistics: the profile of streams that no job has measured yet.

Doors: sampling.
"""
