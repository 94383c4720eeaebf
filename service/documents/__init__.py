"""Documents: YAML, workload files and request bodies, turned into values with errors that name the place.

Doors: contract_document, migration_document, statistics_document, stream_document, workload, yaml_document.
"""
