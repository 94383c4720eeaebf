"""Documents: YAML, workload files and request bodies, turned into values with errors that name the place.

Doors: contract_document, document_errors, migration_document, statistics_document, stream_document,
workload, yaml_document.
"""
