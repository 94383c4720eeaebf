"""The demo: flights, weather and aircraft of 2013, replayed through a service.

Doors: run, workload.
"""
