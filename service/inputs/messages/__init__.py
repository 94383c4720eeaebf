"""Messages of topics as events: JSON objects, or records of Avro whose schemas a registry holds.

Doors: avro, messages.
"""
