"""The demo: flights, weather and aircraft of 2013, or auctions and bids, replayed through a service.

Doors: run, workload.
"""
