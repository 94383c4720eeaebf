"""Topics of Kafka: which messages a batch takes, and their rows.

Doors: topic_reader, topics.
"""
