"""The demo: flights and weather of 2013, replayed through a service.

Doors: run, workload.
"""
