"""Documents: YAML, workload files and request bodies are turned into values; errors name the place.

Doors: contract_document, migration_document, statistics_document, stream_document, workload, yaml_document.
"""
