"""Sinks: results of committed batches delivered to files, webhooks, tables and topics, in order.

Doors: deliverer, delivery, webhook_targets.
"""
