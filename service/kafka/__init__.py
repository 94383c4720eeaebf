"""Apache Kafka: clients of the brokers that streams and sinks name, and their secrets.

Doors: kafka_client.
"""
