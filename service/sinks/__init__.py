"""Sinks: results of committed batches delivered to files and webhooks, in order.

Doors: deliverer, delivery, sink_changes.
"""
