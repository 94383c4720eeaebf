"""Documentation of the API: the OpenAPI document, its texts, and the pages that show it.

Doors: docs_pages, openapi.
"""
