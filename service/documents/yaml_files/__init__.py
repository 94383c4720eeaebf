"""YAML and JSON files whose errors name file, line and column.

Doors: document_errors, yaml_document.
"""
