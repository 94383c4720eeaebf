"""Documents: YAML, workload files and request bodies are turned into values; errors name the place.

Doors: migration_document, statistics_document, workload.
"""
