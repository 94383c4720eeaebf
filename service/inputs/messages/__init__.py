"""Messages of topics as events: JSON objects, or Avro records whose schemas are in a registry.

Doors: avro, messages.
"""
