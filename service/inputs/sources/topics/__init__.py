"""Topics of Kafka: find the messages that batches may take, and read their rows.

Doors: topic_reader, topics.
"""
