"""Time in microseconds: the wall clock, and lengths of time as people write them.

Doors: clock, durations.
"""
